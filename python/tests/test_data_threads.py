"""``workers="threads"``: threads that come, work and go."""

from __future__ import annotations

import functools
import gc
import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from children import HANG_SECONDS, started
from conftest import threads_of_loaders, wait_for_threads
from data_cases import Numbers, flat, seen
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import tensorferry as ferry
from tensorferry.data import get_worker_info

threaded = functools.partial(ferry.DataLoader, workers="threads")

LIMIT_SECONDS = float(HANG_SECONDS)
"""A wait that lasts this long is a hang."""


class Point(NamedTuple):
    x: torch.Tensor
    name: str


class Nested(Dataset[Any]):
    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> Any:
        point = Point(torch.full((2, 3), float(index)), f"n{index}")
        return {"point": point, "pair": (index, [index / 2]), "flag": index % 2 == 0}


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        pairs = zip(left, right, strict=True)
        return type(left) is type(right) and all(same(a, b) for a, b in pairs)
    return bool(left == right)


@pytest.mark.parametrize("workers", [None, 0, 1, 5])
def test_nested_samples_are_collated_as_torch_does(workers: int | None) -> None:
    for size in (1, 3, 10, None):
        loader = threaded(Nested(), size, num_workers=workers)
        assert same(list(loader), list(TorchLoader(Nested(), size)))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_collate_function_of_the_users_is_used(workers: int) -> None:
    loader = threaded(Numbers(5), 2, collate_fn=tuple, num_workers=workers)
    assert list(loader) == [(0, 1), (2, 3), (4,)]
    single = threaded(Numbers(2), None, collate_fn=str, num_workers=workers)
    assert list(single) == ["0", "1"]


class Many(Numbers):
    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.asked: list[list[int]] = []

    def __getitems__(self, indices: list[int]) -> list[int]:
        self.asked.append(list(indices))
        return [index * 10 for index in indices]


def test_a_dataset_that_gets_many_is_asked_once_for_a_batch() -> None:
    dataset = Many(5)
    assert seen(threaded(dataset, 2, num_workers=3)) == [[0, 10], [20, 30], [40]]
    assert sorted(dataset.asked) == [[0, 1], [2, 3], [4]]


class Meeting(Numbers):
    """Samples that come only if as many threads ask at once."""

    def __init__(self, length: int, parties: int) -> None:
        super().__init__(length)
        self.barrier = threading.Barrier(parties)

    def __getitem__(self, index: int) -> int:
        self.barrier.wait(LIMIT_SECONDS)
        return index


@pytest.mark.parametrize("size", [1, 2, 8, 16])
def test_all_threads_work_at_once_whatever_the_batch_size(size: int) -> None:
    loader = threaded(Meeting(16, 2), size, num_workers=2)
    assert flat(loader) == list(range(16))


def test_no_more_is_read_ahead_than_asked_for() -> None:
    asked: list[int] = []

    class Noting(Numbers):
        def __getitem__(self, index: int) -> int:
            asked.append(index)
            return index

    loader = threaded(Noting(1000), 5, num_workers=2, prefetch_factor=3)
    for taken, _ in enumerate(loader, 1):
        assert len(asked) <= 5 * (taken + 2 * 3)
        if taken == 20:
            break


def test_batches_come_in_order_though_they_are_made_out_of_order() -> None:
    class Uneven(Numbers):
        def __getitem__(self, index: int) -> int:
            time.sleep(0.002 * (index % 3))
            return index

    assert flat(threaded(Uneven(40), 3, num_workers=4)) == list(range(40))


def test_out_of_order_a_slow_batch_holds_nobody_up() -> None:
    opened = threading.Event()

    class Stuck(Numbers):
        def __getitem__(self, index: int) -> int:
            if index == 0:
                assert opened.wait(LIMIT_SECONDS)
            return index

    iteration = iter(threaded(Stuck(6), 1, num_workers=2, in_order=False))
    first = [int(next(iteration)) for _ in range(5)]
    assert sorted(first) == [1, 2, 3, 4, 5]
    opened.set()
    assert flat(iteration) == [0]


def test_threads_are_gone_after_the_end_a_break_and_an_exception() -> None:
    loader = threaded(Numbers(100), 2, num_workers=3)
    iteration = iter(loader)
    assert len(threads_of_loaders()) == 3
    for _ in iteration:
        pass
    assert threads_of_loaders() == []
    for _ in loader:
        break
    assert threads_of_loaders() == []

    def fail() -> None:
        for batch in loader:
            raise LookupError(batch)

    with pytest.raises(LookupError):
        fail()
    assert threads_of_loaders() == []


def test_threads_are_gone_when_loader_and_iterator_are_collected() -> None:
    for persistent in (False, True):
        loader = threaded(Numbers(9), num_workers=2, persistent_workers=persistent)
        iteration = iter(loader)
        next(iteration)
        del loader
        assert flat(itertools.islice(iteration, 2)) == [1, 2]  # The iterator needs no loader.
        ring = [iteration]
        ring.append(ring)  # type: ignore[arg-type]
        del iteration, ring
        wait_for_threads()
        assert threads_of_loaders() == []


def test_the_collector_waits_for_no_thread() -> None:
    """It once did, inside the start of a thread for which the other waited: all stood still."""

    class Nesting(Numbers):
        def __getitem__(self, index: int) -> int:
            iteration = iter(threaded(Numbers(9), 2, num_workers=2))
            next(iteration)
            ring: list[Any] = [iteration]
            ring.append(ring)
            return index

    thresholds = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        for number in range(20):
            loader = threaded(Nesting(8), 2, num_workers=2)
            ring: list[Any] = [iter(loader)]
            ring.append(ring)
            assert len(seen(itertools.islice(loader, number % 4))) == number % 4
    finally:
        gc.set_threshold(*thresholds)
    del loader, ring
    wait_for_threads()
    assert threads_of_loaders() == []


def test_persistent_workers_stay_between_epochs_and_others_do_not() -> None:
    made: list[int] = []
    for persistent, expected in ((False, 6), (True, 2)):
        made.clear()
        loader = threaded(
            Numbers(8), num_workers=2, persistent_workers=persistent, worker_init_fn=made.append
        )
        for _ in range(3):
            assert flat(loader) == list(range(8))
        loader.close()
        assert len(made) == expected
        assert set(made) == {0, 1}


def test_a_closed_loader_says_so_also_to_one_who_waits() -> None:
    opened = threading.Event()

    class Stuck(Numbers):
        def __getitem__(self, index: int) -> int:
            assert opened.wait(LIMIT_SECONDS)
            return index

    loader = threaded(Stuck(4), num_workers=1)
    iteration = iter(loader)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            next(iteration)
        except ferry.Closed as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    threading.Timer(0.1, opened.set).start()
    loader.close()
    waiting.join(LIMIT_SECONDS)
    # It may have got the batch just before; then the next call tells.
    if not raised:
        wait()
    assert "closed" in str(raised[0])
    with pytest.raises(ferry.Closed, match="closed"):
        iter(loader)


def test_loaders_work_side_by_side_and_inside_one_another() -> None:
    class Outer(Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            return sum(flat(threaded(Numbers(index + 1), 2, num_workers=2)))

    assert flat(threaded(Outer(), 2, num_workers=2)) == [0, 1, 3, 6]
    loader = threaded(Numbers(20), 3, num_workers=2, persistent_workers=True)
    others = [threaded(Numbers(20), 3, num_workers=2) for _ in range(3)]
    for batches in zip(loader, loader, *others, strict=True):
        assert all(torch.equal(batch, batches[0]) for batch in batches)


def test_several_threads_may_each_iterate() -> None:
    results: list[list[int]] = []
    loader = threaded(Numbers(50), 4, num_workers=2)
    threads = [
        threading.Thread(target=lambda: results.append(flat(loader)), name=f"user-{number}")
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    assert results == [list(range(50))] * 4


def test_a_worker_knows_who_it_is() -> None:
    infos: dict[int, Any] = {}

    class Asking(Meeting):
        def __getitem__(self, index: int) -> int:
            info = get_worker_info()
            assert info is not None
            infos[info.id] = info
            return super().__getitem__(index)

    dataset = Asking(8, 2)
    loader = threaded(dataset, 2, num_workers=2, generator=torch.Generator().manual_seed(3))
    flat(loader)
    base = torch.empty((), dtype=torch.int64).random_(generator=torch.Generator().manual_seed(3))
    assert sorted(infos) == [0, 1]
    assert [infos[number].seed for number in range(2)] == [int(base), int(base) + 1]
    assert infos[0].num_workers == 2
    assert infos[0].dataset is dataset
    assert get_worker_info() is None


class AskingInAProcess(Numbers):
    def __getitem__(self, index: int) -> int:
        info = get_worker_info()
        assert info is not None
        return info.num_workers


def test_torchs_own_workers_are_known_too() -> None:
    assert flat(TorchLoader(AskingInAProcess(2), num_workers=1)) == [1, 1]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_pinning_without_an_accelerator_warns_once_and_yields(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorferry._data import pin

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(pin, "_warned", False)
    with pytest.warns(UserWarning, match="no accelerator"):
        loader = threaded(Numbers(3), pin_memory=True, num_workers=workers)
    assert flat(loader) == [0, 1, 2]
    assert flat(threaded(Numbers(3), pin_memory=True)) == [0, 1, 2]


def test_tensors_are_handed_over_not_copied() -> None:
    kept = torch.arange(6.0)
    loader = threaded(TensorDataset(kept), None, num_workers=2, collate_fn=lambda s: s[0])
    assert {batch.untyped_storage().data_ptr() for batch in loader} == {
        kept.untyped_storage().data_ptr()
    }


class Slow(IterableDataset[int]):
    def __init__(self) -> None:
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            self.closed.set()


def test_an_iterable_that_is_left_is_closed() -> None:
    dataset = Slow()
    for batch in threaded(dataset, 4):
        assert batch.tolist() == [0, 1, 2, 3]
        break
    gc.collect()
    assert dataset.closed.wait(LIMIT_SECONDS)


def run(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        **options,
    )


PREAMBLE = """
import os, sys, time, threading
import functools
import tensorferry as ferry
threaded = functools.partial(ferry.DataLoader, workers="threads")
class Numbers:
    def __len__(self): return 40
    def __getitem__(self, index): return index
"""


@pytest.mark.parametrize("persistent", [False, True])
def test_a_forked_child_iterates_anew_and_is_told_so_in_an_iteration_of_its_parents(
    persistent: bool,
) -> None:
    code = f"""{PREAMBLE}
loader = threaded(Numbers(), 4, num_workers=2, persistent_workers={persistent})
iteration = iter(loader)
next(iteration)
pid = os.fork()
if pid == 0:
    try:
        next(iteration)
    except ferry.Closed as error:
        assert "forked" in str(error), error
        assert sum(len(batch) for batch in loader) == 40
        del iteration, loader
        sys.exit(7)
    os._exit(1)
_, status = os.waitpid(pid, 0)
assert sum(len(batch) for batch in iteration) == 36
print(os.waitstatus_to_exitcode(status))
"""
    done = run(code)
    assert done.stdout.strip() == "7", done.stderr
    assert done.returncode == 0, done.stderr


def test_a_loader_works_in_a_worker_process_of_torchs() -> None:
    code = f"""{PREAMBLE}
import torch.utils.data
class Outer(Numbers):
    def __init__(self): self.inner = threaded(Numbers(), 10, num_workers=2)
    def __len__(self): return 4
    def __getitem__(self, index): return sum(batch.sum() for batch in self.inner)
outer = Outer()
assert outer[0] == 780
print([int(each) for each in torch.utils.data.DataLoader(outer, num_workers=2)])
"""
    done = run(code)
    assert done.stdout.strip() == "[780, 780, 780, 780]", done.stderr


def test_the_interpreter_leaves_in_mid_epoch_without_a_word() -> None:
    for workers in (1, 4):
        code = f"""{PREAMBLE}
loader = threaded(Numbers(), 4, num_workers={workers}, persistent_workers=True)
iteration = iter(loader)
print(next(iteration).tolist())
"""
        done = run(code)
        assert (done.stdout.strip(), done.stderr) == ("[0, 1, 2, 3]", "")
        assert done.returncode == 0


def test_control_c_gets_through_while_waiting_for_a_batch() -> None:
    code = f"""{PREAMBLE}
over = threading.Event()
class Stuck(Numbers):
    def __getitem__(self, index):
        if index == 4:
            print("waiting", flush=True)
            over.wait({LIMIT_SECONDS})
        return index
try:
    for batch in threaded(Stuck(), 4, num_workers=1):
        pass
except KeyboardInterrupt:
    print("interrupted", flush=True)
    over.set()
"""
    command = (sys.executable, "-c", code)
    with started(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "waiting"
        time.sleep(0.3)  # Until the main thread waits too; earlier is no failure either.
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_SECONDS)
    assert (out.strip(), err) == ("interrupted", "")


def test_importing_the_loader_does_not_import_torch() -> None:
    done = run("import sys, tensorferry.data; print('torch' in sys.modules)")
    assert done.stdout.strip() == "False"


def test_growth_is_bounded_over_many_epochs() -> None:
    """Neither threads nor iterators nor places in the order are kept."""
    loader = threaded(Numbers(50), 5, sampler=range(50), num_workers=2)
    flat(loader)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(20):
        flat(loader)
    gc.collect()
    assert len(gc.get_objects()) - before < 200


def test_progress_is_one_line_that_says_how_it_goes() -> None:
    import io

    from tensorferry._data.bad import Ledger
    from tensorferry._data.engine import Batch
    from tensorferry._data.progress import Progress
    from tensorferry._data.stats import Meter

    now = 0.0
    stream, meter = io.StringIO(), Meter(Ledger())
    line = Progress(3, 0, 10, meter, stream, clock=lambda: now)
    for _ in range(2):
        now += 1.0
        meter.waited_seconds += 0.25
        meter.yielded(Batch(0, None, 32))
        line.update()
        line.update()  # Too soon to be shown.
    line.finish()
    shown = stream.getvalue().split("\r")[1:]
    assert shown[0].strip() == "epoch 3: 1/10 batches, 32 samples/s, waiting 25%, 0:09 to go"
    assert shown[1].strip() == "epoch 3: 2/10 batches, 32 samples/s, waiting 25%, 0:08 to go"
    assert len(shown) == 3


def test_progress_keeps_silent_unless_there_is_a_terminal_or_it_is_forced(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flat(threaded(Numbers(4), 2, progress=True))
    assert capsys.readouterr().err == ""
    flat(threaded(Numbers(4), 2, progress="force"))
    assert "epoch 0: 2/2 batches" in capsys.readouterr().err


def test_stats_count_what_was_yielded_and_print_well() -> None:
    loader = threaded(Numbers(10), 4, num_workers=2)
    assert loader.stats().batches == 0
    flat(loader)
    for _ in loader:
        break
    stats = loader.stats()
    assert (stats.epoch, stats.batches, stats.samples) == (1, 4, 14)
    assert set(stats.stages) == {"storage", "decode", "python", "hand-over", "consumer"}
    assert stats.stages["python"] > 0
    assert stats.seconds >= stats.waited_seconds > 0
    assert str(stats).startswith("epoch 1: 4 batches, 14 samples in ")
    assert "threads: python 2" in str(stats)


def test_hidden_helpers_do_not_keep_batches_alive() -> None:
    import weakref

    loader = threaded(Numbers(6), 2, num_workers=2)
    made: list[Callable[[], Any]] = []
    for batch in loader:
        made.append(weakref.ref(batch))
        del batch
    gc.collect()
    assert [each() for each in made] == [None, None, None]
