"""Checkpoints of several ranks, when something goes wrong: disks, permissions, kills, limits."""

import errno
import fcntl
import io
import os
import random
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import torch
from children import HANG_SECONDS
from test_ranks import index_of, names_beside, run, save, save_all, talk

import tensorferry as ferry
from tensorferry import _lib
from tensorferry._checkpoint.opened import Opened
from tensorferry._checkpoint.ranks import alone, index

AS_NOBODY = pytest.mark.skipif(os.geteuid() != 0, reason="becoming nobody needs root")


def cut(step: int, length: int = 2) -> dict[str, Any]:
    """One rank's part of a checkpoint that tells whether it is of one step."""
    return {"x": torch.full((length,), step), "step": step}


def save_cut(step: int, path: Path, rank: int, world_size: int = 2, length: int = 2) -> Any:
    return save(cut(step, length), path, rank, world_size, sharded={"x": 0})


def save_all_cut(step: int, path: Path, world_size: int = 2) -> None:
    save_all([cut(step)] * world_size, path, sharded={"x": 0})


def step_of(path: Path) -> int:
    """The step of a checkpoint, which must be that of all its ranks."""
    got = ferry.load(path)
    assert set(got["x"].tolist()) == {got["step"]}
    return int(got["step"])


def start_all_again() -> None:
    """As if every rank were a new process."""
    alone._lines.clear()


def script(code: str, *arguments: object) -> str:
    """What a process of its own prints."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- a rank that fails never meets another step --


class NoRoom:
    """Drafts on a disk that is full."""

    def __init__(self, path: str) -> None:
        self.path = Path("/dev/full")

    def publish(self, durable: bool) -> None:
        raise AssertionError

    def discard(self) -> None:
        pass


class Unsynced:
    """Drafts that get their name in a directory that can't be synced then."""

    def __init__(self, path: str) -> None:
        self.draft = REAL_DRAFT(path)
        self.path = self.draft.path
        self.discard = self.draft.discard

    def publish(self, durable: bool) -> None:
        self.draft.publish(False)
        raise ferry.Io("can't sync the directory")


REAL_DRAFT = _lib.Draft


def fail_at_the_object(path: Path, rank: int) -> None:
    with pytest.raises(ferry.InvalidInput, match="can't save x"):
        save({"x": object()}, path, rank, 2)


def fail_at_the_parts(path: Path, rank: int) -> None:
    with pytest.raises(ferry.InvalidInput, match="not cut evenly"):
        save_cut(1, path, rank, length=9)


def fail_at_the_index(path: Path, rank: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_lib, "Draft", NoRoom)
        with pytest.raises(ferry.OutOfSpace):
            save_cut(1, path, rank)


FAILURES = [fail_at_the_object, fail_at_the_parts, fail_at_the_index]


def test_a_rank_that_fails_and_goes_on_meets_no_earlier_step(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    save_all_cut(0, path)
    fail_at_the_object(path, 0)
    assert not save_cut(1, path, 1).complete
    assert not save_cut(2, path, 0).complete
    assert step_of(path) == 0


@pytest.mark.parametrize("fail", FAILURES)
def test_a_rank_that_fails_and_repeats_meets_no_later_step(tmp_path: Path, fail: Any) -> None:
    path = tmp_path / "model.ferry"
    save_all_cut(0, path)
    assert not save_cut(1, path, 0).complete
    fail(path, 1)
    assert not save_cut(1, path, 1).complete
    assert not save_cut(2, path, 0).complete
    assert step_of(path) == 0


@pytest.mark.parametrize("fail", FAILURES)
def test_all_ranks_that_are_started_again_after_a_failure_save_again(
    tmp_path: Path, fail: Any
) -> None:
    path = tmp_path / "model.ferry"
    save_all_cut(0, path)
    save_cut(1, path, 0)
    fail(path, 1)
    for step in (2, 3):
        start_all_again()
        save_all_cut(step, path)
        assert step_of(path) == step


def test_a_rank_that_is_the_only_one_saves_on_after_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    save_all_cut(1, path, 1)
    with pytest.raises(ferry.InvalidInput):
        save({"x": object()}, path, 0, 1)
    save_all_cut(2, path, 1)
    assert step_of(path) == 2
    assert names_beside(path) == set(index_of(path)["files"])


def test_what_all_have_saved_before_one_failed_is_made_complete(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    save_cut(1, path, 0)
    fail_at_the_object(path, 0)
    assert save_cut(1, path, 1).complete
    assert step_of(path) == 1


# -- an index that can't be made takes the files with it --


@pytest.mark.parametrize("fail", [fail_at_the_parts, fail_at_the_index])
def test_a_save_whose_index_can_not_be_made_leaves_only_the_old_checkpoint(
    tmp_path: Path, fail: Any
) -> None:
    path = tmp_path / "model.ferry"
    save_all_cut(0, path)
    before = names_beside(path)
    save_cut(1, path, 0)
    fail(path, 1)
    assert names_beside(path) == before
    assert step_of(path) == 0


def test_an_index_that_is_in_its_place_keeps_its_files_whatever_fails_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.ferry"
    save_all_cut(0, path)
    save_cut(1, path, 0)
    monkeypatch.setattr(_lib, "Draft", Unsynced)
    with pytest.raises(ferry.Io, match="can't sync the directory"):
        save_cut(1, path, 1)
    assert step_of(path) == 1


def test_only_one_rank_at_a_time_decides_about_a_save(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    save_cut(1, path, 0)
    (first,) = names_beside(path)
    with (tmp_path / first).open("rb+") as file:
        # As another rank does that has seen all files, and is making the index.
        fcntl.flock(file, fcntl.LOCK_EX)
        assert not save_cut(1, path, 1).complete
    assert not path.exists()
    assert len(names_beside(path)) == 2


@pytest.mark.parametrize("works", [True, False])
def test_where_there_are_no_locks_indexes_are_made_and_no_file_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    def flock(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    path = tmp_path / "model.ferry"
    save_cut(1, path, 0)
    if works:
        assert save_cut(1, path, 1).complete
        assert step_of(path) == 1
    else:
        fail_at_the_parts(path, 1)
    assert len(names_beside(path)) == 2


def save_talking_without_room(path: Path, rank: int, rendezvous: Path) -> None:
    talk(rank, 2, rendezvous)
    save_cut(1, path, rank)
    before = names_beside(path)
    torch.distributed.barrier()
    for draft, error in ((NoRoom, ferry.OutOfSpace), (Unsynced, ferry.Io)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_lib, "Draft", draft)
            with pytest.raises(error) as caught:
                save_cut(2, path, rank)
        assert ("rank 0 has failed" in str(caught.value)) == (rank == 1)
        torch.distributed.barrier()
        if draft is NoRoom:
            assert names_beside(path) == before
        assert step_of(path) == (1 if draft is NoRoom else 2)
        torch.distributed.barrier()
    assert save_cut(3, path, rank).complete
    torch.distributed.destroy_process_group()


def test_ranks_that_talk_leave_only_what_an_index_names(
    tmp_path: Path, processes: ForkServerContext
) -> None:
    path = tmp_path / "saved" / "model.ferry"
    path.parent.mkdir()
    ranks = ((path, rank, tmp_path / "meet") for rank in range(2))
    run(processes, save_talking_without_room, *ranks)
    assert step_of(path) == 3


def test_a_disk_that_is_full_for_one_rank_leaves_the_old_checkpoint(small_disk: Path) -> None:
    path = small_disk / "model.ferry"
    save_all_cut(0, path)
    before = names_beside(path)
    save_cut(1, path, 0)
    with pytest.raises(ferry.OutOfSpace):
        save_cut(1, path, 1, length=8 << 20)
    assert step_of(path) == 0
    left = names_beside(path) - before
    assert [name[: len("model-00000-")] for name in left] == ["model-00000-"]
    start_all_again()
    save_all_cut(2, path)
    assert step_of(path) == 2


# -- what is at the path --


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that nobody can reach; those of pytest are for their owner only."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@AS_NOBODY
def test_a_directory_that_can_not_be_listed_leads_to_no_mixture(place: Path) -> None:
    told = script(
        """
        import os, sys, torch, tensorferry as ferry
        from tensorferry._checkpoint.ranks import alone
        path = f"{sys.argv[1]}/model.ferry"
        def save(rank, step):
            state = {"x": torch.full((1,), step)}
            ferry.save(state, path, rank=rank, world_size=2, sharded={"x": 0}, durable=False)
        os.chmod(sys.argv[1], 0o733)
        os.setuid(65534)
        save(0, 1), save(1, 1)
        alone._lines.clear()  # From here on, the next job.
        save(0, 2)
        print(ferry.load(path)["x"].tolist())
        save(1, 2)
        print(ferry.load(path)["x"].tolist())
        """,
        place,
    )
    assert told == "[1, 1]\n[2, 2]\n"


class BadSectors(io.BytesIO):
    """A file of which only the beginning can be read."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size < 100:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(size)


def test_a_file_beside_that_can_not_be_read_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kept = tmp_path / "latest.ferry", tmp_path / "best.ferry"
    save_all_cut(1, path)
    path.rename(kept)
    bad = tmp_path / "bad.ferry"
    bad.write_bytes(kept.read_bytes())

    def open_some(name: Any, mode: str) -> Any:
        return BadSectors(bad.read_bytes()) if Path(name) == bad else open(name, mode)

    monkeypatch.setattr(index, "open", open_some, raising=False)
    start_all_again()
    save_cut(2, path, 0)
    assert step_of(kept) == 1


@pytest.mark.parametrize("kind", ["directory", "below a file", "pipe"])
def test_a_path_that_can_not_be_saved_to_is_told_as_without_ranks(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "there"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.touch()
        path /= "model.ferry"
    with pytest.raises(ferry.Error) as plain:
        ferry.save({}, path)
    for world_size in (1, 2):
        with pytest.raises(type(plain.value)) as caught:
            save({}, path, 0, world_size)
        assert str(caught.value) == str(plain.value)
    assert os.listdir(tmp_path) == ["there"]


def save_as_nobody(path: Path, other: Path) -> str:
    """What is told to who may not save."""
    return script(
        """
        import os, sys, tensorferry as ferry
        # What is imported late, nobody could not read any more.
        ferry.save({}, sys.argv[2], rank=0, world_size=1)
        os.setuid(65534)
        try:
            ferry.save({"step": 2}, sys.argv[1], rank=0, world_size=2, durable=False)
        except ferry.PermissionDenied as error:
            print(error)
        """,
        path,
        other,
    )


@AS_NOBODY
@pytest.mark.parametrize(
    ("mode", "why"),
    [
        (0o600, "can't save over this file, it is not writable"),
        (0o444, "can't save over this file, it is not writable"),
        (0o622, "can't read what is there"),
    ],
)
def test_no_permission_for_an_index_is_told_before_a_file_of_it_is_touched(
    place: Path, tmp_path: Path, mode: int, why: str
) -> None:
    path = place / "model.ferry"
    save_all_cut(1, path)
    for name in names_beside(path):
        os.chmod(place / name, 0o666)
    os.chmod(path, mode)
    os.chmod(place, 0o777)
    told = save_as_nobody(path, tmp_path / "other.ferry")
    assert why in told
    assert str(path) in told
    assert step_of(path) == 1
    assert names_beside(path) == set(index_of(path)["files"])


@AS_NOBODY
def test_no_permission_for_the_directory_is_told(place: Path, tmp_path: Path) -> None:
    told = save_as_nobody(place / "model.ferry", tmp_path / "other.ferry")
    assert "can't save, no file can be made in " in told
    assert os.listdir(place) == []


def test_a_plain_checkpoint_is_not_read_to_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.ferry"
    ferry.save({"x": torch.zeros(1000)}, path, tool="buffered", durable=False)

    def read(name: str) -> Any:
        raise AssertionError(name)

    with monkeypatch.context() as patch:
        patch.setattr(index, "read", read)
        save_all_cut(1, path)
    assert step_of(path) == 1


# -- limits --


def test_many_ranks_need_few_open_files(tmp_path: Path) -> None:
    told = script(
        """
        import os, resource, sys, torch, tensorferry as ferry
        path, ranks = sys.argv[1], 100
        def save(rank):
            own = {f"own{rank}": torch.ones(1)}
            state = {"x": torch.full((2,), rank), "same": torch.ones(3), **own}
            say = {"sharded": {"x": 0}, "replicated": ["same"]}
            options = {"tool": "direct", "durable": False, "world_size": ranks}
            return ferry.save(state, path, rank=rank, **options, **say)
        for rank in range(ranks - 1):
            save(rank)
        # What loading needs at all, with its threads and rings, is there before.
        ferry.save({"x": torch.ones(1)}, path + "-plain")
        for options in ({}, {"mmap": True}, {"verify": False}):
            ferry.load(path + "-plain", **options)
        limit = len(os.listdir("/proc/self/fd")) + 70
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        assert save(ranks - 1).complete
        whole = [rank for rank in range(ranks) for _ in range(2)]
        for options in ({}, {"mmap": True}, {"verify": False}):
            for parts, part in ((1, 0), (3, 2)):
                keys = {"keys": ["x", "same"], "rank": part, "world_size": parts}
                got = ferry.load(path, **keys, **options)
                assert got["x"].tolist() == torch.tensor(whole).chunk(parts)[part].tolist()
            assert ferry.load(path, rank=7, world_size=ranks, **options)["x"].tolist() == [7, 7]
        print("all loaded")
        """,
        tmp_path / "model.ferry",
    )
    assert told == "all loaded\n"


# -- moments --


@pytest.mark.parametrize("options", [{}, {"mmap": True}, {"verify": False}])
def test_an_index_that_is_replaced_while_its_files_are_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    path = tmp_path / "model.ferry"
    save_all_cut(1, path)
    steps: list[int] = []

    def late(real: Any) -> Any:
        def call(opened: Opened, wanted: Any) -> Any:
            if steps:
                save_all_cut(steps.pop(), path)
            return real(opened, wanted)

        return call

    monkeypatch.setattr(Opened, "mapped", late(Opened.mapped))
    monkeypatch.setattr(Opened, "owned", late(Opened.owned))
    for world_size in (2, 1):
        steps.append(world_size + 1)
        got = ferry.load(path, rank=0, world_size=world_size, **options)
        assert set(got["x"].tolist()) == {got["step"]}


STEPS_MAX = 1_000_000
"""Of one job; so no two jobs have the same steps."""


def save_until_killed(path: Path, job: int, warm: int, going: Any) -> None:
    """Both ranks, step after step; ``going`` is set after ``warm`` of them."""
    for step in range(STEPS_MAX):
        if step == warm:
            going.set()
        for rank in range(2):
            save_cut(job * STEPS_MAX + step, path, rank, length=50_000)


def test_a_kill_at_any_moment_leaves_one_whole_step(
    tmp_path: Path, processes: ForkServerContext
) -> None:
    path = tmp_path / "model.ferry"
    save_all_cut(0, path)
    chance = random.Random(0)
    last = 0
    for job in range(1, 41):
        # Half of them are killed in the middle of many saves, the others also in their first.
        warm, going = job % 2, processes.Event()
        process = processes.Process(target=save_until_killed, args=(path, job, warm, going))
        process.start()
        try:
            assert going.wait(HANG_SECONDS)
            time.sleep(chance.uniform(0, 0.03))
        finally:
            process.kill()
        process.join(HANG_SECONDS)
        step = step_of(path)
        assert step >= (job * STEPS_MAX if warm else last)
        last = step
        # Which job has begun a file is known by its time: the next one starts a little later.
        time.sleep(0.05)
