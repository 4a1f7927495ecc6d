"""Datasets in Python: in the calling thread, or in worker processes that are torch's."""

from __future__ import annotations

import contextlib
import copy
import gc
import itertools
import multiprocessing
import os
import pickle
import random
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children import HANG_SECONDS
from data_cases import Numbers, flat, seen
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, IterableDataset, RandomSampler, get_worker_info

import tensorferry as ferry

KINDS: list[Any] = [TorchLoader, ferry.DataLoader]


class Records(Dataset[int]):
    """One handle for all, opened lazily, as everybody does; seek and read are two steps."""

    def __init__(self, path: Path, count: int) -> None:
        self.path, self.count = path, count
        self.handle: Any = None
        path.write_bytes(b"".join(struct.pack("<q", number) for number in range(count)))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        if self.handle is None:
            self.handle = self.path.open("rb", buffering=0)
        self.handle.seek(8 * index)
        time.sleep(0)  # Where another thread would come between.
        return int(struct.unpack("<q", self.handle.read(8))[0])


@pytest.mark.parametrize("workers", [None, 2])
def test_a_dataset_with_one_handle_gives_the_samples_that_were_asked_for(
    workers: int | None, tmp_path: Path
) -> None:
    dataset = Records(tmp_path / "records", 1200)
    assert flat(ferry.DataLoader(dataset, 16, num_workers=workers)) == list(range(1200))
    if dataset.handle is not None:
        dataset.handle.close()


class Table(Numbers):
    """SQLite refuses a connection in another thread than its own."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.connection: Any = None

    def __getitem__(self, index: int) -> int:
        if self.connection is None:
            self.connection = sqlite3.connect(":memory:")
        return int(self.connection.execute("select ?", (index,)).fetchone()[0])


def test_a_database_is_used_by_the_thread_that_opened_it() -> None:
    for workers in (None, 1):
        assert flat(ferry.DataLoader(Table(20), 4, num_workers=workers)) == list(range(20))


class Whose(Numbers):
    def __getitem__(self, index: int) -> Any:
        return os.getpid()


def test_no_workers_are_the_default_and_processes_are_processes() -> None:
    assert set(flat(ferry.DataLoader(Whose(4), 2))) == {os.getpid()}
    assert ferry.DataLoader(Whose(4)).num_workers == 0
    loader = ferry.DataLoader(Whose(8), 2, num_workers=2)
    pids = set(flat(loader))
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert "python 2" in str(loader.stats())


class Augmented(Numbers):
    """What a random augmentation draws, from each generator that there is."""

    def __getitem__(self, index: int) -> Any:
        return index, random.random(), np.random.rand(), torch.rand(3)


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_manual_seed_gives_torchs_order_and_augmentation_epoch_after_epoch(
    workers: int, persistent: bool
) -> None:
    results = []
    for kind in KINDS:
        torch.manual_seed(11)
        random.seed(11)
        np.random.seed(11)
        loader = kind(Augmented(11), 3, True, num_workers=workers, persistent_workers=persistent)
        came = []
        for _ in range(3):
            for index, *drawn in loader:
                came.append((index.tolist(), [each.tolist() for each in drawn]))
                # The rest of the user's program draws too.
                came.append((torch.rand(()).item(), []))
        results.append((came, torch.get_rng_state().tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("size", [1, 3, None])
def test_manual_seed_gives_torchs_order_for_all_lengths_and_after_a_break(
    size: int | None,
) -> None:
    for length, drop_last in itertools.product((1, 2, 12, 13), (False, True)):
        if size is None and drop_last:
            continue
        results = []
        for kind in KINDS:
            torch.manual_seed(length)
            loader = kind(Numbers(length), size, True, drop_last=drop_last)
            came = []
            for epoch in range(4):
                for number, batch in enumerate(loader):
                    came.append(torch.as_tensor(batch).tolist())
                    if (epoch, number) == (1, 1):
                        break
            results.append((came, torch.get_rng_state().tolist()))
        assert results[0] == results[1]


def test_five_seeds_are_five_orders_and_one_seed_is_one() -> None:
    orders = []
    for seed in (0, 1, 2, 3, 4, 0):
        torch.manual_seed(seed)
        orders.append(tuple(flat(ferry.DataLoader(Numbers(50), 5, True))))
    assert len(set(orders)) == 5
    assert orders[0] == orders[5]


def test_a_worker_is_told_what_torch_tells_it() -> None:
    results = []
    for kind in KINDS:
        generator = torch.Generator().manual_seed(3)
        loader = kind(Asking(6), None, num_workers=2, generator=generator, worker_init_fn=mark)
        results.append([tuple(each) for each in loader])
    assert results[0] == results[1]
    assert [each[:2] for each in results[1]] == [(0, 2), (1, 2)] * 3
    assert get_worker_info() is None


class Asking(Numbers):
    mark = 0

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        assert info.dataset is self
        return info.id, info.num_workers, info.seed, self.mark


def mark(worker: int) -> None:
    """What people do in a worker_init_fn."""
    info = get_worker_info()
    assert info is not None
    assert info.id == worker
    info.dataset.mark = 10 + worker  # type: ignore[attr-defined]


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_processes_may_be_started_in_any_way(context: str) -> None:
    loader = ferry.DataLoader(Numbers(6), 2, num_workers=1, multiprocessing_context=context)
    assert seen(loader) == [[0, 1], [2, 3], [4, 5]]


def test_persistent_workers_stay_and_others_do_not() -> None:
    for persistent, expected in ((False, 3), (True, 1)):
        loader = ferry.DataLoader(Whose(4), 2, num_workers=1, persistent_workers=persistent)
        assert len({pid for _ in range(3) for pid in flat(loader)}) == expected
        iteration = iter(loader)
        next(iteration)
        # A second iteration beside the first has others.
        assert set(flat(loader)) != set(flat(iteration))
        loader.close()
        assert multiprocessing.active_children() == []


class Uneven(Numbers):
    """The first sample comes when another has come."""

    def __init__(self, length: int, gate: Any) -> None:
        super().__init__(length)
        self.gate = gate

    def __getitem__(self, index: int) -> int:
        if index == 0:
            assert self.gate.wait(60)
        return index


def test_batches_come_in_order_or_as_they_are_ready_and_are_counted_right() -> None:
    gate = multiprocessing.Event()
    loader = ferry.DataLoader(Uneven(8, gate), 2, num_workers=2, in_order=False)
    iteration = iter(loader)
    assert next(iteration).tolist() == [2, 3]
    state = loader.state_dict()
    assert (state["batches"], state["beyond"]) == (0, [1])
    gate.set()
    assert sorted(flat(iteration)) == [0, 1, 4, 5, 6, 7]
    resumed = ferry.DataLoader(Uneven(8, gate), 2, num_workers=2, in_order=False)
    resumed.load_state_dict(state)
    assert sorted(flat(resumed)) == [0, 1, 4, 5, 6, 7]


def test_what_is_set_after_the_loader_was_made_counts_from_the_next_iteration() -> None:
    loader = ferry.DataLoader(Asking(4), None, num_workers=1)
    assert [each[3] for each in loader] == [0] * 4
    loader.worker_init_fn = mark
    assert [each[3] for each in loader] == [10] * 4
    loader.num_workers = 0
    loader.collate_fn = str
    loader.dataset.length = 0  # type: ignore[attr-defined]
    assert list(loader) == []


def test_it_is_a_torch_loader_that_pickles_and_is_copied_as_torchs() -> None:
    loader = ferry.DataLoader(Numbers(9), 2, True, None, None, 0, None, False, True, seed=3)
    assert isinstance(loader, TorchLoader)
    assert ferry.DataLoader[int] is not None  # As people write their types.
    first = seen(loader)
    for other in (pickle.loads(pickle.dumps(loader)), copy.copy(loader), copy.deepcopy(loader)):
        assert isinstance(other, ferry.DataLoader)
        other.set_epoch(0)
        assert seen(other) == first
    second = pickle.loads(pickle.dumps(loader))
    assert seen(second) == seen(loader) != first
    assert (loader.batch_size, loader.drop_last, loader.num_workers) == (2, True, 0)
    assert type(loader.sampler).__mro__[1] is RandomSampler
    unshuffled: Any = ferry.DataLoader(Numbers(9))
    assert type(unshuffled.sampler) is type(TorchLoader(Numbers(9)).sampler)


def test_processes_end_with_the_last_reference_also_in_a_cycle_after_an_error() -> None:
    class Broken(Numbers):
        def __getitem__(self, index: int) -> int:
            raise KeyError(index)

    for persistent in (False, True):
        loader = ferry.DataLoader(Broken(9), num_workers=2, persistent_workers=persistent)
        iteration = iter(loader)
        caught: list[Any] = [iteration]
        with contextlib.suppress(KeyError):
            next(iteration)
        try:
            next(iteration)
        except KeyError as error:
            caught.append(error)
        caught.append(caught)
        del iteration, loader, caught
        gc.collect()
        assert multiprocessing.active_children() == []


class Growing(Numbers):
    pass


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 1},
        {"workers": "threads", "num_workers": 1},
        {"shuffle": True},
        {"shuffle": True, "seed": 1},
        {"shuffle": True, "drop_last": True},
        {"shuffle": True, "rank": 1, "world_size": 3},
    ],
)
def test_a_dataset_that_grows_between_epochs_has_the_length_that_comes(
    options: dict[str, Any],
) -> None:
    dataset = Growing(5)
    loader = ferry.DataLoader(dataset, 2, **options)
    for length in (5, 9, 30, 12):
        dataset.length = length
        assert len(loader) == len(seen(loader))


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)


PREAMBLE = """
import os, sys, time
import tensorferry as ferry
class Numbers:
    def __len__(self): return 40
    def __getitem__(self, index): return index
"""


@pytest.mark.parametrize("persistent", [False, True])
def test_a_forked_child_leaves_its_parents_processes_alone(persistent: bool) -> None:
    code = f"""{PREAMBLE}
loader = ferry.DataLoader(Numbers(), 4, num_workers=1, persistent_workers={persistent})
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
        os._exit(7)
    os._exit(1)
_, status = os.waitpid(pid, 0)
assert sum(len(batch) for batch in iteration) == 36
print(os.waitstatus_to_exitcode(status))
"""
    done = run(code)
    assert (done.stdout.strip(), done.returncode) == ("7", 0), done.stderr


def test_the_interpreter_leaves_in_mid_epoch_without_a_word() -> None:
    code = f"""{PREAMBLE}
loader = ferry.DataLoader(Numbers(), 4, num_workers=2, persistent_workers=True)
iteration = iter(loader)
print(next(iteration).tolist())
"""
    done = run(code)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("[0, 1, 2, 3]", "", 0)


def test_a_worker_that_is_killed_is_an_error_each_time_and_no_hang() -> None:
    # In a process of its own: torch raises it wherever the main thread is.
    code = f"""{PREAMBLE}
import signal
class Dying(Numbers):
    def __getitem__(self, index):
        if index == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return index
loader = ferry.DataLoader(Dying(), num_workers=2)
iteration = iter(loader)
for _ in range(20):
    try:
        next(iteration)
    except RuntimeError as error:
        assert "DataLoader worker (pid" in str(error), error
        print("error")
print([int(batch) for batch in ferry.DataLoader(Numbers(), num_workers=1)] == list(range(40)))
"""
    done = run(code)
    words = done.stdout.split()
    assert words.count("error") >= 14, done.stderr
    assert words[-1] == "True"


class Parts(IterableDataset[int]):
    """Divides itself between workers, as torch's documentation shows it."""

    def __init__(self, length: int = 23) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, self.length, step))

    def __len__(self) -> int:
        return self.length


@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"batch_size": None}])
def test_workers_of_an_iterable_take_turns_as_torchs_do(options: dict[str, Any]) -> None:
    options = {"batch_size": 2, "num_workers": 2, **options}
    results = [
        [torch.as_tensor(batch).tolist() for batch in kind(Parts(), **options)] for kind in KINDS
    ]
    assert results[0] == results[1]


def test_an_iterable_that_is_longer_than_it_said_is_warned_of_as_torch_does() -> None:
    class Whole(Parts):
        def __iter__(self) -> Iterator[int]:
            return iter(range(self.length))

    for kind in KINDS:
        loader = kind(Whole(3), None, num_workers=2)
        assert list(loader) == [0, 0, 1, 1, 2, 2]
        assert len(loader) == 3
        with pytest.warns(UserWarning, match="reported to be 3"):
            assert list(loader) == [0, 0, 1, 1, 2, 2]


def test_pinning_takes_batches_of_workers_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.data._utils import pin_memory

    from tensorferry._data.engine import Batch
    from tensorferry._data.in_worker import Answer

    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, *_: tensor + 1)
    answer = Answer(Batch(3, {"x": torch.tensor([1])}, 1, worker=2), None)
    pinned = pin_memory.pin_memory(answer)  # type: ignore[no-untyped-call]
    assert pinned.batch.data["x"].tolist() == [2]
    assert (pinned.batch.number, pinned.batch.worker) == (3, 2)


class Odd(Numbers):
    """Has a sample that can't be sent to another process."""

    def __init__(self, what: str) -> None:
        super().__init__(8)
        self.what = what

    def __getitem__(self, index: int) -> Any:
        class Local(Exception):
            pass

        if index == 2 and self.what == "error":
            raise Local("bad sample")
        return (lambda: index) if index == 2 and self.what == "sample" else index

    def state_dict(self) -> Any:
        return (lambda: 1) if self.what == "state" else {}

    def load_state_dict(self, state: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("error", r"Local: bad sample\s+while getting sample 2"),
        ("sample", r"can't send this batch.*num_workers=0"),
        ("state", r"can't send this batch, or the state of the dataset.*num_workers=0"),
    ],
)
def test_what_can_not_be_sent_from_a_worker_is_an_error_and_no_hang(what: str, told: str) -> None:
    # With a time limit: what broke was that it waited for ever.
    batches = iter(ferry.DataLoader(Odd(what), 2, num_workers=1, collate_fn=list, timeout=100))
    if what != "state":
        assert next(batches) == [0, 1]
    with pytest.raises(RuntimeError, match=f"(?s){told}"):
        next(batches)
    if what != "state":
        assert next(batches) == [4, 5]


def test_persistent_workers_end_with_their_loader_also_after_one_was_killed(
    tmp_path: Path,
) -> None:
    # In a process of its own: torch raises it wherever the main thread is.
    code = f"""{PREAMBLE}
import gc, pathlib, signal, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from children import living
once = pathlib.Path({str(tmp_path / "once")!r})
once.touch()
class Dying(Numbers):
    def __getitem__(self, index):
        if index == 5 and once.exists():
            once.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return index
gc.disable()
loader = ferry.DataLoader(Dying(), num_workers=2, persistent_workers=True)
try:
    list(loader)
except RuntimeError:
    print("error")
iteration = iter(loader)
next(iteration)
print(len(living()))
del iteration, loader
until = time.monotonic() + 60
while living() and time.monotonic() < until:
    time.sleep(0.01)
print(len(living()))
"""
    done = run(code)
    assert done.stdout.split() == ["error", "2", "0"], done.stderr


@pytest.mark.parametrize("lost", [ConnectionResetError, EOFError, FileNotFoundError])
def test_a_worker_that_ends_while_its_batch_is_handed_over_is_said_to_have_ended(
    lost: type[Exception],
) -> None:
    from tensorferry._data.processes import _explained

    told = _explained(lost("/tmp/socket"))
    assert isinstance(told, RuntimeError)
    assert "DataLoader worker" in str(told)
    assert "exited unexpectedly" in str(told)
