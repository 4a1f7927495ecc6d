"""What Python callers get when the core fails."""

import errno
import multiprocessing
import pickle

import pytest

import tensorferry as ferry
from tensorferry import _errors, _lib

BUILTINS = {
    "InvalidInput": ValueError,
    "NotFound": FileNotFoundError,
    "PermissionDenied": PermissionError,
    "Truncated": _errors.Corrupt,
    "OutOfSpace": OSError,
    "FileTooLarge": OSError,
    "OutOfMemory": MemoryError,
    "Timeout": TimeoutError,
    "Io": OSError,
    "Internal": RuntimeError,
}


def raised(kind: str, message: str = "write failed", code: int | None = None) -> ferry.Error:
    with pytest.raises(ferry.Error) as caught:
        _lib._error_for_tests(kind, message, code)
    return caught.value


def test_every_kind_of_the_core_has_a_class_of_its_name() -> None:
    assert [cls.kind for cls in _errors.ALL] == list(_lib.KINDS)
    for kind in _lib.KINDS:
        assert getattr(ferry, kind) is getattr(_errors, kind)
        assert kind in ferry.__all__


@pytest.mark.parametrize("kind", _lib.KINDS)
def test_a_failure_of_the_core_arrives_whole(kind: str) -> None:
    error = raised(kind)
    assert type(error).__name__ == error.kind == kind
    assert str(error) == "write failed (file: /scratch/a, offset: 4096)"
    assert error.context == {"file": "/scratch/a", "offset": "4096"}
    assert error.retryable == (kind in {"Timeout", "OutOfSpace", "OutOfMemory"})
    assert isinstance(error, BUILTINS.get(kind, ferry.Error))


@pytest.mark.parametrize("kind", _lib.KINDS)
@pytest.mark.parametrize("code", [None, errno.ENOSPC])
def test_an_exception_survives_pickling(kind: str, code: int | None) -> None:
    error = raised(kind, code=code)
    error.add_note("while saving step 7")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert (copy.retryable, copy.context) == (error.retryable, error.context)
    assert copy.errno == error.errno == code
    assert copy.__notes__ == ["while saving step 7"]


def test_the_operating_systems_number_is_there_but_not_in_front_of_the_message() -> None:
    error = raised("OutOfSpace", code=errno.ENOSPC)
    assert isinstance(error, OSError)
    assert error.errno == errno.ENOSPC
    assert str(error) == (
        "write failed (file: /scratch/a, offset: 4096): No space left on device (os error 28)"
    )


def test_classes_show_as_the_public_names_users_import() -> None:
    assert f"{ferry.NotFound.__module__}.{ferry.NotFound.__qualname__}" == "tensorferry.NotFound"
    assert repr(raised("Corrupt", "bad header")).startswith("Corrupt('bad header")


def test_a_panic_is_an_internal_error_and_not_a_base_exception(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ferry.Internal) as caught:
        _lib._panic_for_tests("index out of bounds")
    assert isinstance(caught.value, Exception)
    assert str(caught.value) == ("tensorferry has a bug, please report it: index out of bounds")
    assert "python/src/guard.rs" in capfd.readouterr().err  # The place is on standard error.


def fail_in_worker(kind: str) -> None:
    _lib._error_for_tests(kind, "read failed")


def test_an_exception_crosses_from_a_worker_process() -> None:
    with (
        multiprocessing.get_context("spawn").Pool(1) as pool,
        pytest.raises(ferry.NotFound, match=r"^read failed \(file: /scratch/a"),
    ):
        pool.apply(fail_in_worker, ("NotFound",))
