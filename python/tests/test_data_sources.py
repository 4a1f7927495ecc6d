"""Our own datasets: what stands in a folder, labels, and files that change."""

from __future__ import annotations

import io
import math
import os
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import default_collate

import tensorferry as ferry
from tensorferry._data import core
from tensorferry._data.datasets import Throttled
from tensorferry.data import Files, ImageFolder, TarShards
from tensorferry.data import transforms as T  # noqa: N812

SMALL = T.Compose([T.Decode(), T.Resize((8, 8))])


def picture(path: Path, format: str) -> None:
    """A picture of the format, whatever the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 100, 50)).save(written, format)
    path.write_bytes(written.getvalue())


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Pictures, one of which is a BMP."""
    for name, format in (("cat/0.jpg", "JPEG"), ("cat/1.bmp", "BMP"), ("dog/2.png", "PNG")):
        picture(tmp_path / name, format)
    return tmp_path


def test_one_bmp_among_pictures_is_an_error_of_its_sample_that_says_what_it_is(
    mixed: Path,
) -> None:
    """It refused the whole folder with "Decode is no step for bytes"."""
    with pytest.warns(UserWarning, match=r"1 of 3 files.*extensions=.*cat/1\.bmp"):
        dataset = ImageFolder(mixed)
    assert len(dataset) == 3
    batches = iter(ferry.DataLoader(dataset, transform=SMALL))
    assert next(batches)[0].shape == (1, 3, 8, 8)
    with pytest.raises(ferry.Unsupported, match=r"the file is a BMP picture.*on_error.*1\.bmp"):
        next(batches)
    assert next(batches)[0].shape == (1, 3, 8, 8)
    skipping = ferry.DataLoader(dataset, 3, transform=SMALL, on_error="skip")
    assert [labels.tolist() for _, labels in skipping] == [[0, 1]]
    chosen = ImageFolder(mixed, extensions=(".jpg", ".png"))
    assert [labels.tolist() for _, labels in ferry.DataLoader(chosen, 2, transform=SMALL)] == [
        [0, 1]
    ]
    assert len(ImageFolder(mixed, extensions="png", allow_empty=True)) == 1


def test_the_content_of_a_picture_counts_and_not_its_name(tmp_path: Path) -> None:
    picture(tmp_path / "cat/1.bmp", "JPEG")
    with pytest.warns(UserWarning, match="by their names"):
        dataset = ImageFolder(tmp_path)
    assert dataset[0][0].shape == (3, 16, 16)


@pytest.mark.parametrize("names", [("1.jpg", "2.bmp"), ("1.jpg", "2"), ("1", "2"), ("1.bmp",)])
def test_whoever_decodes_files_gets_pictures_and_errors_by_name(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    for name in names:
        picture(tmp_path / name, "BMP" if name.endswith(".bmp") else "PNG")
    dataset = Files([tmp_path / name for name in names])
    for name, index in zip(names, range(len(names)), strict=True):
        loader = ferry.DataLoader(dataset, sampler=[index], transform=SMALL)
        if not name.endswith(".bmp"):
            assert next(iter(loader)).shape == (1, 3, 8, 8)
            continue
        with pytest.raises(ferry.Unsupported, match=r"BMP picture.*\.bmp"):
            next(iter(loader))


def test_a_step_without_meaning_names_a_file(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", "PNG")
    (tmp_path / "b.txt").write_text("text")
    dataset = Files([tmp_path / "a.png", tmp_path / "b.txt"])
    with pytest.raises(ferry.InvalidInput, match=r"Resize is no step for bytes.*b\.txt"):
        ferry.DataLoader(dataset, transform=T.Resize(8))
    assert dataset[1] == b"text"


def test_samples_that_differ_name_one_of_them(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(2))
    np.save(tmp_path / "b.npy", np.zeros(3))
    np.savez(tmp_path / "c.npz", x=np.zeros(2))
    np.savez(tmp_path / "d.npz", x=np.zeros(2), y=np.zeros(2))
    for pattern in ("?.npy", "?.npz"):
        for on_error in ("raise", "skip"):
            loader: Any = ferry.DataLoader(Files(str(tmp_path / pattern)), 2, on_error=on_error)
            with pytest.raises(ferry.InvalidInput, match=r"differ|lacks") as caught:
                next(iter(loader))
            assert str(tmp_path) in str(caught.value)


LABELS: dict[str, Any] = {
    "ints": [3, 1, 2],
    "floats": [0.5, 1.0, 2.25],
    "bools": [True, False, True],
    "range": range(3),
    "tensor of ints": torch.tensor([1, 2, 3]),
    "tensor of bools": torch.tensor([True, False, True]),
    "list of tensors": [torch.tensor(1), torch.tensor(2), torch.tensor(3)],
    "array of floats": np.array([0.5, 1, 2], np.float32),
    "array of ints": np.array([1, 2, 3], np.uint8),
    "list of NumPy's": [np.int64(4), np.int64(5), np.int64(6)],
}


@pytest.fixture
def three(tmp_path: Path) -> str:
    """Three files."""
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", np.array(number))
    return str(tmp_path / "?.npy")


def _plain(label: Any) -> Any:
    return label.item() if hasattr(label, "item") else label


@pytest.mark.parametrize("kind", LABELS)
def test_labels_are_what_torch_makes_of_them(three: str, kind: str) -> None:
    given = LABELS[kind]
    plain = given.tolist() if hasattr(given, "tolist") else [_plain(label) for label in given]
    _, got = next(iter(ferry.DataLoader(Files(three, labels=given), 3)))
    expected = default_collate(plain)
    assert torch.equal(got, expected)
    assert got.dtype == expected.dtype
    alone = Files(three, labels=plain)[1][1]
    assert (type(alone), alone) == (type(plain[1]), plain[1])


def test_a_float_among_whole_numbers_makes_floats_and_nan_stays(three: str) -> None:
    _, got = next(iter(ferry.DataLoader(Files(three, labels=[1, 0.5, math.nan]), 3)))
    assert got.dtype == torch.float64
    assert got[:2].tolist() == [1.0, 0.5]
    assert got[2].isnan()
    for given in ([True, 2, 3], iter((1, 2, 3))):
        whole = next(iter(ferry.DataLoader(Files(three, labels=given), 3)))[1]
        assert whole.tolist() == [1, 2, 3]
        assert whole.dtype == torch.int64


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (["0", "1", "2"], r"label 0 is '0' \(str\).*int\(\)"),
        (np.array(["cat", "dog", "cat"]), r"label 0 is 'cat'"),
        ([0, None, 1], r"label 1 is None"),
        ([0, 1, 2**63], "int64 can't hold"),
        ([0.0, math.inf, 1.0], "label 1 is inf"),
        ([[0, 1], [1, 0], [1, 1]], r"label 0 is \[0, 1\]"),
        (torch.zeros(3, 2), r"label 0 is \[0.0, 0.0\]"),
        ("012", "labels are a list of numbers"),
        ({0: 1, 1: 2, 2: 3}, "labels are a list of numbers"),
        ({0, 1, 2}, "labels are a list of numbers"),
        (7, "labels are a list of numbers"),
        (torch.tensor(7), "labels are a list of numbers"),
        ([0, 1], "3 files and 2 labels"),
    ],
)
def test_labels_that_are_no_numbers_are_refused_by_their_place(
    three: str, labels: Any, says: str
) -> None:
    """``["0"]`` became 0.0."""
    with pytest.raises(ferry.InvalidInput, match=says):
        Files(three, labels=labels)


@contextmanager
def serving(directory: Path) -> Iterator[int]:
    """A web server for a directory, at this port."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(directory))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_a_dataset_is_remote_if_its_store_is(mixed: Path, three: str) -> None:
    """It was, whenever ``://`` stood anywhere in its description."""
    options = {"endpoint": "http://127.0.0.1:9"}
    local = ImageFolder(mixed, extensions=("jpg", "png"), storage_options=options)
    assert not local._source.is_remote()
    assert not Files(f"file://{three}")._source.is_remote()
    assert Throttled(Files(three), 1 << 20)._source.is_remote()
    with serving(Path(three).parent) as port:
        remote = Files([f"http://127.0.0.1:{port}/0.npy"])
        assert remote._source.is_remote()
        assert remote[0] == 0


# -- files that change under a loader --


def large(path: Path) -> None:
    """Large enough to stay in its file until it is prepared."""
    np.save(path, np.zeros((600, 600)))


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


LISTED = "had .* when it was listed"

CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "deleted": (Path.unlink, "the file is not there, or not any more"),
    "cut": (lambda path: os.truncate(path, path.stat().st_size // 2), LISTED),
    "emptied": (lambda path: os.truncate(path, 0), LISTED),
    "grown": (lambda path: os.truncate(path, path.stat().st_size + 9), LISTED),
    "a directory": (make_directory, "a directory stands where"),
    "a link to nowhere": (make_link, "the file is not there"),
}


@pytest.mark.parametrize("make", [lambda path: np.save(path, np.zeros(9)), large])
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_after_it_was_listed_is_an_error_by_name(
    tmp_path: Path, change: str, make: Callable[[Path], object]
) -> None:
    for number in range(3):
        make(tmp_path / f"{number}.npy")
    dataset = Files(str(tmp_path / "?.npy"))
    do, says = CHANGES[change]
    do(tmp_path / "1.npy")
    batches = iter(ferry.DataLoader(dataset))
    next(batches)
    with pytest.raises(ferry.Error, match=says) as caught:
        next(batches)
    assert str(tmp_path / "1.npy") in str(caught.value)
    next(batches)


def test_files_that_are_added_after_the_list_was_made_change_no_index(tmp_path: Path) -> None:
    for number in (1, 3):
        picture(tmp_path / f"a/{number}.png", "PNG")
    dataset = ImageFolder(tmp_path)
    picture(tmp_path / "a/2.png", "PNG")
    picture(tmp_path / "A/0.png", "PNG")
    loader = ferry.DataLoader(dataset)
    assert (len(dataset), len(loader), len(list(loader))) == (2, 2, 2)
    assert [Path(name).name for name, _ in dataset.samples] == ["1.png", "3.png"]


def test_a_folder_that_is_gone_is_an_error_of_each_sample(tmp_path: Path) -> None:
    picture(tmp_path / "root/a/1.png", "PNG")
    dataset = ImageFolder(tmp_path / "root")
    shutil.rmtree(tmp_path / "root")
    for on_error in ("raise", "skip", "substitute"):
        with pytest.raises(ferry.NotFound, match=r"root/a/1\.png"):
            next(iter(ferry.DataLoader(dataset, on_error=on_error)))


@pytest.mark.parametrize("change", ["cut", "deleted"])
def test_a_shard_that_changes_after_it_was_indexed_is_an_error_by_name(
    tmp_path: Path, change: str
) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as shard:
        for number in range(3):
            path = tmp_path / f"{number}.npy"
            large(path)
            shard.add(path, path.name)
    dataset = TarShards(str(tmp_path / "0.tar"))
    if change == "cut":
        os.truncate(tmp_path / "0.tar", 5000)
        with pytest.raises(ferry.Truncated, match=r"cut since.*0\.tar"):
            list(ferry.DataLoader(dataset))
    else:
        # It is held open.
        (tmp_path / "0.tar").unlink()
        assert len(list(ferry.DataLoader(dataset))) == 3


# -- the SSD --


def limits(options: dict[str, Any], dataset: Files) -> tuple[int, int]:
    """Bytes in the directory, and bytes left to others."""
    loader = ferry.DataLoader(dataset, **options)
    given = core._cache_dir(loader._options)
    assert given is not None
    return given[1:]


def test_the_cache_on_an_ssd_has_a_limit_and_one_that_ranks_share(
    three: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank took half of the free disk."""
    room = SimpleNamespace(f_bavail=1 << 20, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: room)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    dataset, where = Files(three), {"cache_dir": str(tmp_path)}
    assert limits(where, dataset) == (2 << 30, 2 << 30)
    assert limits(where | {"rank": 1, "world_size": 8}, dataset)[0] == (2 << 30) // 8
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert limits(where | {"rank": 1, "world_size": 8}, dataset)[0] == (2 << 30) // 4
    assert limits(where | {"cache_dir_limit": "100MiB"}, dataset) == (100 << 20, 0)
    assert limits(where | {"cache_dir_limit": 4096}, dataset) == (4096, 0)
    with pytest.raises(ferry.InvalidInput, match=r"cache_dir_limit='1GiB'.*give that too"):
        ferry.DataLoader(dataset, cache_dir_limit="1GiB")
    with pytest.raises(ferry.InvalidInput, match="some"):
        ferry.DataLoader(dataset, cache_dir=str(tmp_path), cache_dir_limit="some")


def test_a_limit_on_the_ssd_is_kept(tmp_path: Path) -> None:
    for number in range(20):
        np.save(tmp_path / f"{number:02}.npy", np.zeros(1000))
    loader = ferry.DataLoader(
        Files(str(tmp_path / "*.npy")), 4, cache_dir=str(tmp_path), cache_dir_limit="64KiB"
    )
    for _ in range(3):
        assert len(list(loader)) == 5
    hits = loader.stats().cache_hits
    assert 0 < hits["disk"] <= 2 * 8, "eight samples of two pages fit, and none in memory"


def test_a_directory_for_the_cache_that_is_not_there_is_told(three: str) -> None:
    for limit in ("auto", "1GiB"):
        with pytest.raises(ferry.NotFound, match="cache_dir="):
            ferry.DataLoader(Files(three), cache_dir="/nowhere/at/all", cache_dir_limit=limit)
