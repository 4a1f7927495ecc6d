"""Datasets that the core reads by itself."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import struct
import tarfile
import threading
import time
import wave
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler

import tensorferry as ferry
from tensorferry import _lib, _machine
from tensorferry._data.core import REMOTE_THREADS, _cache_bytes
from tensorferry._data.datasets import Throttled
from tensorferry._data.timeouts import DataTimeout
from tensorferry.data import Files, ImageFolder, TarShards
from tensorferry.data import transforms as T  # noqa: N812

IMAGES = Path(__file__).parents[2] / "crates/tensorferry/tests/data/images"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three classes of a few pictures each, of several formats."""
    for label, names in enumerate([["photo.jpg", "rgb-420.jpg"], ["grey.jpg"], ["lossy.webp"] * 3]):
        directory = tmp_path / "pictures" / f"class{label}"
        directory.mkdir(parents=True)
        for number, name in enumerate(names * 3):
            shutil.copy(IMAGES / name, directory / f"{number}{Path(name).suffix}")
    return tmp_path / "pictures"


@pytest.fixture
def numbers(tmp_path: Path) -> list[str]:
    """Files of which number i holds i."""
    directory = tmp_path / "numbers"
    directory.mkdir()
    for number in range(40):
        np.save(directory / f"{number:03}.npy", np.array([number, -number], np.int32))
    return sorted(str(path) for path in directory.iterdir())


TRAIN = T.Compose([T.Decode(), T.RandomResizedCrop(32), T.RandomHorizontalFlip()])


def test_batches_of_pictures_are_tensors_with_labels_in_torchs_order(folder: Path) -> None:
    dataset = ImageFolder(folder)
    assert dataset.classes == ["class0", "class1", "class2"]
    loader = ferry.DataLoader(dataset, batch_size=4, shuffle=True, seed=3, transform=TRAIN)
    sampler = DistributedSampler[Any](range(len(dataset)), num_replicas=1, rank=0, seed=3)  # type: ignore[arg-type]
    for epoch in range(2):
        sampler.set_epoch(epoch)
        expected = [dataset.targets[index] for index in sampler]
        seen: list[int] = []
        for images, labels in loader:
            assert images.shape[1:] == (3, 32, 32)
            assert images.dtype == torch.float32
            assert images.is_contiguous()
            assert labels.dtype == torch.int64
            assert images.min() >= 0
            assert images.max() <= 1
            seen += labels.tolist()
        assert seen == expected


def test_the_same_seed_gives_the_same_pixels_on_any_number_of_threads(folder: Path) -> None:
    def epochs(workers: int, seed: int) -> list[Any]:
        loader = ferry.DataLoader(
            ImageFolder(folder), 4, True, seed=seed, num_workers=workers, transform=TRAIN
        )
        return [images for _ in range(2) for images, _ in loader]

    one = epochs(1, 0)
    assert all(torch.equal(a, b) for a, b in zip(one, epochs(4, 0), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one, epochs(1, 1), strict=True))
    assert not torch.equal(one[0], one[len(one) // 2]), "epochs differ"


@pytest.mark.parametrize("name", ["rgb-444.jpg", "cmyk.jpg", "palette.png", "lossless.webp"])
def test_a_picture_is_what_pillow_decodes(name: str) -> None:
    raw = np.frombuffer((IMAGES / f"{name}.raw").read_bytes(), np.uint8)
    transform = T.Compose([T.ToDtype(torch.uint8), T.ToLayout("HWC")])
    (images,) = ferry.DataLoader(Files([str(IMAGES / name)]), transform=transform)
    assert images.dtype == torch.uint8
    assert images.shape[-1] == 3
    difference = np.abs(images.numpy().ravel().astype(int) - raw.astype(int))
    assert difference.max() <= 2


def test_arrays_come_stacked_as_torch_would_and_labels_with_them(numbers: list[str]) -> None:
    loader = ferry.DataLoader(Files(numbers, labels=range(40)), batch_size=16)
    batches = list(loader)
    arrays = torch.cat([array for array, _ in batches])
    assert torch.equal(arrays, torch.stack([torch.from_numpy(np.load(path)) for path in numbers]))
    assert torch.cat([labels for _, labels in batches]).tolist() == list(range(40))
    floats = ferry.DataLoader(Files(numbers, labels=np.linspace(0, 1, 40)), batch_size=40)
    assert next(iter(floats))[1].dtype == torch.float64


def test_a_batch_keeps_its_memory_after_the_loader_is_gone(numbers: list[str]) -> None:
    loader = ferry.DataLoader(Files(numbers), batch_size=40)
    kept = next(iter(loader))
    copy = kept.clone()
    del loader
    for _ in range(3):
        list(ferry.DataLoader(Files(numbers), batch_size=40))
    assert torch.equal(kept, copy)


def test_members_of_npz_files_sound_and_bytes(tmp_path: Path) -> None:
    for number in range(3):
        a, b = np.full(3, number), np.full((2, 2), number, np.float32)
        np.savez(tmp_path / f"{number}.npz", a=a, b=b)
        (tmp_path / f"{number}.bin").write_bytes(bytes([number] * number))
    batch = next(iter(ferry.DataLoader(Files(str(tmp_path / "*.npz")), batch_size=3)))
    assert batch["a"].tolist() == [[0] * 3, [1] * 3, [2] * 3]
    assert batch["b"].shape == (3, 2, 2)
    blobs = next(iter(ferry.DataLoader(Files(str(tmp_path / "*.bin")), batch_size=3)))
    assert blobs == [b"", b"\1", b"\2\2"]
    frames = struct.pack("<4h", 0, 16384, -32768, 1)
    head = b"RIFF" + struct.pack("<I", 36 + 8) + b"WAVEfmt "
    head += struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16) + b"data" + struct.pack("<I", 8)
    (tmp_path / "sound.wav").write_bytes(head + frames)
    sound = next(iter(ferry.DataLoader(Files([str(tmp_path / "sound.wav")]))))
    assert torch.equal(sound, torch.tensor([[[0.0, 0.5, -1.0, 1 / 32768]]]))


def test_sound_comes_as_it_is_stored_if_asked_for(tmp_path: Path) -> None:
    for number in range(2):
        with wave.open(str(tmp_path / f"{number}.wav"), "wb") as file:
            file.setparams((2, 2, 8000, 0, "NONE", ""))
            file.writeframes(struct.pack("<6h", *range(6 * number, 6 * number + 6)))
    files = Files(str(tmp_path / "*.wav"))
    sound = next(iter(ferry.DataLoader(files, batch_size=2, transform=T.AsStored())))
    assert torch.equal(sound, torch.arange(12, dtype=torch.int16).view(2, 3, 2))
    doubled = T.Compose([T.AsStored(), T.Lambda(lambda frames: frames * 2)])
    twice = next(iter(ferry.DataLoader(files, batch_size=2, transform=doubled)))
    assert torch.equal(twice, 2 * sound)
    with pytest.raises(ferry.InvalidInput, match="AsStored"):
        ferry.DataLoader(Files([str(IMAGES / "rgb-420.jpg")]), transform=T.AsStored())


def shards(directory: Path, count: int) -> str:
    """Two tar files of pictures and classes."""
    content = (IMAGES / "rgb-420.jpg").read_bytes()
    for shard in range(2):
        with tarfile.open(directory / f"train-{shard}.tar", "w") as tar:
            for sample in range(count):
                for ending, data in (
                    ("jpg", content),
                    ("cls", str(shard * count + sample).encode()),
                ):
                    info = tarfile.TarInfo(f"{sample:04}.{ending}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    return str(directory / "train-{0..1}.tar")


def test_tar_shards_give_pictures_and_classes(tmp_path: Path) -> None:
    loader = ferry.DataLoader(TarShards(shards(tmp_path, 5)), batch_size=5, transform=TRAIN)
    (first, classes), (second, more) = loader
    assert first.shape == second.shape == (5, 3, 32, 32)
    assert classes.tolist() + more.tolist() == list(range(10))


def test_shards_that_are_open_here_are_read_in_a_forked_child_too(tmp_path: Path) -> None:
    dataset: Any = TarShards(shards(tmp_path, 5))
    expected, _ = dataset[3]
    loader: Iterable[Any] = torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=2, multiprocessing_context="fork"
    )
    samples = list(loader)
    assert torch.equal(samples[3][0], expected)
    assert [int(label) for _, label in samples] == list(range(10))


def test_a_tar_file_that_is_cut_is_an_error_by_name_or_a_warning(tmp_path: Path) -> None:
    pattern = shards(tmp_path, 5)
    path = tmp_path / "train-1.tar"
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(ferry.Error, match=r"train-1\.tar"):
        TarShards(pattern)
    with pytest.warns(UserWarning, match=r"train-1\.tar"):
        assert 5 <= len(TarShards(pattern, strict=False)) < 10


def test_functions_of_the_users_run_in_their_place(numbers: list[str]) -> None:
    threads = set()

    def double(tensor: torch.Tensor) -> torch.Tensor:
        threads.add(threading.get_ident())
        return tensor.float() * 2

    loader = ferry.DataLoader(Files(numbers), batch_size=40, transform=T.Lambda(double))
    (batch,) = loader
    assert batch[:, 0].tolist() == [2.0 * number for number in range(40)]
    assert threading.get_ident() not in threads
    broken = ferry.DataLoader(Files(numbers), transform=T.Lambda(lambda _: 1 / 0))
    with pytest.raises(ferry.Error, match="ZeroDivisionError") as raised:
        next(iter(broken))
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert raised.value.__cause__.__traceback__ is not None


def test_a_function_may_ask_a_dataset_for_other_samples(numbers: list[str]) -> None:
    dataset = Files(numbers)

    def add_the_first(tensor: torch.Tensor) -> torch.Tensor:
        return torch.add(tensor, dataset[1])

    loader = ferry.DataLoader(
        dataset, batch_size=20, num_workers=1, timeout=60, transform=T.Lambda(add_the_first)
    )
    assert torch.cat(list(loader))[:, 0].tolist() == list(range(1, 41))


def test_samples_alone_and_collated_by_the_user(numbers: list[str]) -> None:
    dataset = Files(numbers, labels=range(40))
    alone = next(iter(ferry.DataLoader(dataset, batch_size=None)))
    assert alone[0].tolist() == [0, 0]
    assert alone[1] == 0
    assert isinstance(alone[1], int)
    assert dataset[-1][1] == 39
    with pytest.raises(IndexError):
        dataset[40]
    loader = ferry.DataLoader(dataset, batch_size=3, collate_fn=lambda samples: len(samples))
    assert list(loader) == [3] * 13 + [1]


def test_a_function_that_waits_for_what_its_own_threads_would_make_is_refused(
    numbers: list[str],
) -> None:
    dataset = Files(numbers)
    other = ferry.DataLoader(dataset, batch_size=2, transform=T.Log())
    open_one = iter(other)

    def a_batch(values: torch.Tensor) -> Any:
        return values + next(iter(other)).sum()

    def the_next_batch(values: torch.Tensor) -> Any:
        return values + next(open_one).sum()

    def a_prepared_sample(values: torch.Tensor) -> Any:
        return values + other.dataset[0]

    for function in (a_batch, the_next_batch, a_prepared_sample):
        loader = ferry.DataLoader(dataset, batch_size=4, transform=T.Lambda(function), timeout=60)
        with pytest.raises(ferry.InvalidInput, match="can't wait for batches") as caught:
            next(iter(loader))
        assert isinstance(caught.value.__cause__, ferry.InvalidInput)
    assert len(next(open_one)) == 2


def test_prepared_samples_come_in_a_forked_process_too(numbers: list[str]) -> None:
    dataset = ferry.DataLoader(Files(numbers), transform=T.Log(100.0)).dataset
    expected = dataset[3]  # Threads begin in this process.
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=4, num_workers=2, multiprocessing_context="fork"
    )
    assert torch.equal(torch.cat(list(loader))[3], expected)


def test_samples_apart_are_prepared_ahead_as_far_as_batches_are(numbers: list[str]) -> None:
    dataset = Files(numbers)

    def prepares(expected: int, **options: Any) -> bool:
        prepared: list[int] = []

        def note(tensor: torch.Tensor) -> torch.Tensor:
            prepared.append(1)
            return tensor

        loader = ferry.DataLoader(
            dataset, num_workers=2, prefetch_factor=2, transform=T.Lambda(note), **options
        )
        batches = iter(loader)
        next(batches)
        # With nobody asking for more, so much is prepared at last.
        for _ in range(6000):
            if len(prepared) >= expected:
                break
            time.sleep(0.01)
        loader.close()
        return len(prepared) >= expected

    # One batch was taken; of those behind it, prefetch_factor are prepared ahead.
    assert prepares(15, batch_size=5)
    assert prepares(15, batch_size=5, collate_fn=len)
    assert prepares(5, batch_size=None)
    sampler = [list(range(at, at + 5)) for at in range(0, 40, 5)]
    assert prepares(15, batch_sampler=sampler, collate_fn=len)


def test_arrays_without_elements_keep_the_dimension_of_the_batch(tmp_path: Path) -> None:
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", np.zeros((0, 4), np.float32))
    (batch,) = ferry.DataLoader(Files(str(tmp_path / "*.npy")), batch_size=3)
    assert batch.shape == (3, 0, 4)


def test_seconds_are_told_by_where_they_went(numbers: list[str]) -> None:
    def slowly(value: Any) -> Any:
        time.sleep(0.01)
        return value

    loader = ferry.DataLoader(Files(numbers[:4]), batch_size=2, transform=T.Lambda(slowly))
    list(loader)
    stages = loader.stats().stages
    assert stages["python"] >= 0.04
    assert stages["hand-over"] > 0
    assert stages["storage"] > 0
    collated = ferry.DataLoader(Files(numbers[:4]), batch_size=2, collate_fn=slowly)
    list(collated)
    assert collated.stats().stages["python"] >= 0.02


def test_half_an_epoch_saved_and_loaded_gives_the_other_half(folder: Path) -> None:
    def make() -> ferry.DataLoader:
        return ferry.DataLoader(ImageFolder(folder), 2, True, seed=1, transform=TRAIN)

    whole = [images for images, _ in make()]
    loader = make()
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    again = make()
    again.load_state_dict(loader.state_dict())
    rest = [images for images, _ in again]
    assert len(rest) == len(whole) - 3
    assert all(torch.equal(a, b) for a, b in zip(rest, whole[3:], strict=True))


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "missing": Path.unlink,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "no picture": lambda path: path.write_bytes(b"This is no picture at all."),
    "a directory": make_directory,
    "renamed": lambda path: path.rename(path.with_suffix(".gone")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_bad_sample_is_raised_by_name_skipped_or_replaced(folder: Path, damage: str) -> None:
    dataset = ImageFolder(folder)
    bad = Path(dataset.samples[4][0])
    DAMAGES[damage](bad)

    def make(on_error: Any) -> ferry.DataLoader:
        return ferry.DataLoader(dataset, 3, on_error=on_error, transform=TRAIN, seed=1)

    with pytest.raises(ferry.Error) as raised:
        list(make("raise"))
    assert bad.name in str(raised.value)
    skip = make("skip")
    assert [len(labels) for _, labels in skip] == [3, 2] + [3] * (len(dataset) // 3 - 2)
    assert skip.stats().bad_samples == 1
    assert skip.state_dict()["bad"]["count"] == 1
    first, second = make("substitute"), make("substitute")
    for (one, _), (other, _) in zip(first, second, strict=True):
        assert len(one) == 3
        assert torch.equal(one, other)


def test_a_decompression_bomb_is_refused_before_memory_is_asked_for(tmp_path: Path) -> None:
    bomb = bytearray((IMAGES / "grey.png").read_bytes())
    bomb[16:24] = struct.pack(">II", 100_000, 100_000)
    (tmp_path / "bomb.png").write_bytes(bytes(bomb))
    with pytest.raises(ferry.Error, match=r"bomb\.png"):
        next(iter(ferry.DataLoader(Files([str(tmp_path / "bomb.png")]))))
    small = ferry.DataLoader(Files([str(IMAGES / "photo.jpg")]), max_pixels=100)
    with pytest.raises(ferry.Error, match="pixels"):
        next(iter(small))


def test_a_store_that_stalls_is_a_timeout_and_nothing_hangs(numbers: list[str]) -> None:
    slow = Throttled(Files(numbers), 1 << 30, latency_seconds=3600)
    loader = ferry.DataLoader(slow, batch_size=4, timeout=0.2)
    # A RuntimeError too, as with torch and with any other dataset.
    with pytest.raises(DataTimeout, match=r"after 0.2 seconds: .*000\.npy"):
        next(iter(loader))


def test_a_timeout_of_the_store_fails_its_batch_alone_and_is_no_timeout_of_the_loader(
    numbers: list[str],
) -> None:
    class Late:
        """A run whose first batch timed out in its store."""

        def __init__(self, run: Any) -> None:
            self._run, self._is_first = run, True

        def __getattr__(self, name: str) -> Any:
            return getattr(self._run, name)

        def next(self, timeout: float | None) -> Any:
            handed = self._run.next(timeout)
            if not self._is_first:
                return handed
            self._is_first = False
            raise ferry.Timeout("the store did not answer")

    batches = iter(ferry.DataLoader(Files(numbers), batch_size=4, timeout=600))
    batches._run._run = Late(batches._run._run)  # type: ignore[attr-defined]
    with pytest.raises(ferry.Timeout, match="the store did not answer"):
        next(batches)
    assert next(batches)[:, 0].tolist() == [4, 5, 6, 7]


def test_closing_a_loader_wakes_the_thread_that_waits_for_a_batch(numbers: list[str]) -> None:
    slow = Throttled(Files(numbers), 1 << 30, latency_seconds=3600)
    loader = ferry.DataLoader(slow, batch_size=4)
    batches, told = iter(loader), []

    def wait() -> None:
        with pytest.raises(ferry.Closed):
            next(batches)
        told.append(True)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    loader.close()
    waiting.join(60)
    assert told


def test_what_is_kept_near_is_the_same_and_counted(folder: Path) -> None:
    def epochs(**options: Any) -> tuple[list[torch.Tensor], ferry.DataLoader]:
        loader = ferry.DataLoader(ImageFolder(folder), 4, True, transform=TRAIN, seed=1, **options)
        return [images for _ in range(3) for images, _ in loader], loader

    plain, _ = epochs(cache_limit=0)
    for options in ({"cache": "raw"}, {"cache": "decoded"}, {"cache_policy": "lru"}):
        kept, loader = epochs(cache_limit="1GiB", **options)
        assert all(torch.equal(a, b) for a, b in zip(plain, kept, strict=True)), options
        hits = loader.stats().cache_hits
        count = len(ImageFolder(folder))
        assert (hits["memory"], hits["backend"]) == (2 * count, count)


def test_an_ssd_takes_what_memory_does_not(numbers: list[str], tmp_path: Path) -> None:
    loader = ferry.DataLoader(Files(numbers), 8, True, cache_limit=1000, cache_dir=str(tmp_path))
    for _ in range(3):
        assert sorted(torch.cat(list(loader))[:, 0].tolist()) == list(range(40))
    hits = loader.stats().cache_hits
    assert hits["backend"] == 40
    assert hits["memory"] > 0
    assert hits["disk"] > hits["memory"]
    assert not [path for path in tmp_path.iterdir() if path.name != "numbers"], "no file is left"


def test_a_dataset_goes_to_another_process_and_a_forked_child_can_load(numbers: list[str]) -> None:
    dataset = Files(numbers, labels=range(40))
    assert len(pickle.loads(pickle.dumps(dataset))) == 40
    loader = ferry.DataLoader(dataset, batch_size=8)
    batches = iter(loader)
    next(batches)
    child = os.fork()
    if child == 0:
        worked = False
        try:
            worked = len(list(loader)) == 5
        finally:
            os._exit(0 if worked else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(batches)) == 4


def test_pictures_of_different_sizes_are_an_error_that_says_what_to_do(folder: Path) -> None:
    with pytest.raises(ferry.InvalidInput, match="RandomResizedCrop"):
        list(ferry.DataLoader(ImageFolder(folder), batch_size=18))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ImageFolder("/nowhere"), "/nowhere"),
        (lambda: Files("/nowhere/*.npy"), "nowhere"),
        (lambda: Files(["a.npy"], labels=[1, 2]), "labels"),
        (lambda: TarShards("/nowhere/{0..2}.tar"), "nowhere"),
        (lambda: T.Compose([print]), "Lambda"),  # type: ignore[list-item]
    ],
)
def test_what_makes_no_sense_is_refused_by_name(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ferry.Error, match=says):
        make()


def test_a_zip_that_is_damaged_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, a=np.arange(1000))
    assert zipfile.is_zipfile(path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ferry.Error, match=r"a\.npz"):
        next(iter(ferry.DataLoader(Files([str(path)]))))


def test_a_function_for_workers_is_not_passed_over_in_silence(numbers: list[str]) -> None:
    with pytest.warns(UserWarning, match="worker_init_fn is not called: a Files"):
        loader = ferry.DataLoader(Files(numbers), worker_init_fn=print)
    assert len(list(loader)) == 40


def test_small_batches_of_a_remote_dataset_keep_its_threads_busy(numbers: list[str]) -> None:
    for size in (1, None):
        loader = ferry.DataLoader(Throttled(Files(numbers), 1 << 30), size, prefetch_factor=1)
        batches: Any = iter(loader)
        assert len(batches._numbers) >= REMOTE_THREADS
        assert len(list(batches)) == 40
    # torch's place in the generator is that of its own read-ahead.
    local = iter(ferry.DataLoader(Files(numbers), 1, num_workers=2, prefetch_factor=1))
    assert len(local._numbers) == 2  # type: ignore[attr-defined]


def test_the_cache_of_a_remote_dataset_keeps_to_the_container_and_is_shared(
    numbers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_lib, "headroom", lambda: (32 << 20, 8 << 20))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)

    def cache_bytes(*, is_remote: bool = True, **options: Any) -> int:
        loader = ferry.DataLoader(Files(numbers), **options)
        return _cache_bytes(loader._options, is_remote=is_remote)

    assert _machine.memory_bytes() == 32 << 20
    assert cache_bytes() == 2 << 20
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert cache_bytes() == 1 << 19
    assert cache_bytes(cache_limit=7) == 7
    assert cache_bytes(is_remote=False) == 0
    monkeypatch.setattr(_lib, "headroom", lambda: None)
    assert _machine.memory_bytes() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_settings_of_a_store_are_not_passed_over_in_silence(numbers: list[str]) -> None:
    with pytest.raises(ferry.InvalidInput, match="belongs to the dataset"):
        ferry.DataLoader(Files(numbers), storage_options={"region": "moon"})


def test_a_sampler_may_count_from_the_end_and_is_told_what_there_is_not(
    numbers: list[str],
) -> None:
    loader = ferry.DataLoader(Files(numbers), 2, sampler=[-1, 0, 3, -41, 1, 40, -40, 2])
    batches = iter(loader)
    assert next(batches)[:, 0].tolist() == [39, 0]
    with pytest.raises(IndexError, match="no sample -41 among 40"):
        next(batches)
    with pytest.raises(ferry.InvalidInput, match="sample 40 is asked for, and there are 40"):
        next(batches)
    assert next(batches)[:, 0].tolist() == [0, 2]
