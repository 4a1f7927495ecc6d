"""The Python side of ``tensorferry bench checkpoint``: does one case each time it is asked.

Private. The command starts this module and writes requests, a line of JSON each::

    {"case": "torch.save", "bytes": 1073741824, "tensors": 16}

Each is answered by one line: what was measured, or ``{"error": "..."}``. The first answer comes
without a request and says where files go and which versions are here.

Started with ``--under``, it makes a directory there and removes it when its input ends, also
because the command was interrupted or killed. Started with ``--in``, it uses another's.

What is the same for all contestants: the state is made before the clock starts; the previous file
is gone by then; a save counts when its file is synced (ours syncs the directory too); a load
counts when every byte was read from the tensors it gave. Each rival gets its best: torch.save a
path and not a Python file, distributed checkpoints a thread for each processor and memory to load
into that is already there.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import mmap
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch

    State: TypeAlias = dict[str, torch.Tensor]

PACKAGES = ("torch", "safetensors", "tensorferry")
COUNT_SECONDS = 1.0
COUNT_STEP = 10_000
FILES = {
    "ferry": "ferry.tfc",
    "torch": "torch.pt",
    "safetensors": "model.safetensors",
    "dcp": "dcp",
}


class Bench:
    """A directory, a state to save, and the clock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.shape = (0, 0)
        self.kept: State | None = None
        self.proven: set[str] = set()
        self.measured: dict[str, Any] = {}

    def state(self) -> State:
        """Random tensors, in all as many bytes as was asked for; the same in every process."""
        if self.kept is None:
            import torch

            size, tensors = self.shape
            ends = [size // 8 * i // tensors for i in range(tensors + 1)]
            random = torch.Generator().manual_seed(1)
            self.kept = {}
            for i in range(tensors):
                words = torch.empty(ends[i + 1] - ends[i], dtype=torch.int64)
                words.random_(generator=random)
                self.kept[f"layer.{i}.weight"] = words.view(torch.float32)
        return self.kept

    def touched_copy(self) -> State:
        """Memory like the state's, with all of its pages there."""
        import torch

        return {name: torch.empty_like(t).fill_(1) for name, t in self.state().items()}

    def path(self, name: str) -> Path:
        """Where the contestant's file lies."""
        return self.directory / FILES[name]

    def fresh(self, name: str) -> Path:
        """The same, with nothing there, and with the removal behind us."""
        path = self.path(name)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        sync(self.directory)
        return path

    def timed(self, work: Callable[[], Any]) -> Any:
        """Does the work and notes how long it took, also in processor time of all threads."""
        cpu, start = time.process_time(), time.perf_counter()
        result = work()
        self.measured["seconds"] = time.perf_counter() - start
        self.measured["cpu_seconds"] = time.process_time() - cpu
        return result

    def loaded(self, who: str, load: Callable[[], State]) -> None:
        """Times a load with a look at every byte; the first time, they must be the right ones."""
        state = self.timed(lambda: touched(load()))
        if who not in self.proven and self.kept is not None:
            import torch

            if state.keys() != self.kept.keys() or not all(
                torch.equal(bits(state[name]), bits(t)) for name, t in self.kept.items()
            ):
                raise ValueError(f"{who} gave other tensors than were saved")
            self.proven.add(who)


def sync(path: Path) -> None:
    """Waits until a file's bytes, or a directory's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def chill(path: Path) -> None:
    """Drops a synced file from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes as integers, which have no NaN."""
    import torch

    return tensor.view(-1).view(torch.int64)


def touched(state: State) -> State:
    """Reads every byte."""
    for tensor in state.values():
        if tensor.numel():
            bits(tensor).amax()
    return state


Case: TypeAlias = Callable[[Bench], None]
CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    """Makes a function known under the name by which it is asked for."""

    def known(function: Case) -> Case:
        CASES[name] = function
        return function

    return known


@case("ferry.save")
def ferry_save(bench: Bench) -> None:
    """Ours. It syncs by itself; that the syncs here find nothing to do costs nothing."""
    import tensorferry as ferry

    state, path = bench.state(), bench.fresh("ferry")

    def work() -> None:
        ferry.save(state, path)
        sync(path)
        sync(path.parent)

    bench.timed(work)


@case("torch.save")
def torch_save(bench: Bench) -> None:
    """torch's, into a file of its own opening, which is faster than into one of Python's."""
    import torch

    state, path = bench.state(), bench.fresh("torch")

    def work() -> None:
        torch.save(state, path)
        sync(path)

    bench.timed(work)


@case("safetensors.save_file")
def safetensors_save(bench: Bench) -> None:
    """The rival that most models are shipped with."""
    from safetensors.torch import save_file

    state, path = bench.state(), bench.fresh("safetensors")

    def work() -> None:
        save_file(state, path)
        sync(path)

    bench.timed(work)


@case("dcp.save")
def dcp_save(bench: Bench) -> None:
    """torch.distributed.checkpoint in one process; its writer syncs each file."""
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    state, path = bench.state(), bench.fresh("dcp")
    threads = len(os.sched_getaffinity(0))

    def work() -> None:
        writer = FileSystemWriter(path, sync_files=True, thread_count=threads)
        save(state, storage_writer=writer, no_dist=True)

    bench.timed(work)


@case("ferry.load")
def ferry_load(bench: Bench) -> None:
    """Ours, into memory."""
    import tensorferry as ferry

    bench.loaded("ferry.load", lambda: ferry.load(bench.path("ferry")))


@case("ferry.load again")
def ferry_load_again(bench: Bench) -> None:
    """Ours, as fio reads: into memory that was used before, that of a load which was let go of, and
    without another look at every byte."""
    import tensorferry as ferry

    path = bench.path("ferry")
    ferry.load(path)
    chill(path)
    bench.timed(lambda: ferry.load(path))


FIRST_LOAD = """
import tensorferry, torch
def work():
    return tensorferry.load(sys.argv[1])
"""

# The largest pieces that two threads can make without waiting for each other: a table of pages.
NEW_MEMORY = """
import ctypes, mmap, os
from concurrent.futures import ThreadPoolExecutor
advice, size, piece = int(sys.argv[1]), int(sys.argv[2]), 2 << 20
memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(advice)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
madvise = ctypes.CDLL(None, use_errno=True).madvise
populate_write = 23
def make(at):
    if madvise(ctypes.c_void_p(start + at), min(piece, size - at), populate_write):
        raise OSError(ctypes.get_errno(), "can't populate memory")
threads = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
list(threads.map(lambda _: None, range(64)))
def work():
    list(threads.map(make, range(0, size, piece)))
"""

TIMED = """
import json, sys, time
{prepare}
cpu, began = time.process_time(), time.perf_counter()
kept = work()
seconds = {{"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}}
print(json.dumps(seconds))
"""


def timed_alone(bench: Bench, prepare: str, *arguments: object) -> None:
    """Times the work that a script prepares, as the first thing that a process does."""
    command = [sys.executable, "-c", TIMED.format(prepare=prepare), *map(str, arguments)]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    bench.measured.update(json.loads(told))


@case("ferry.load first")
def ferry_load_first(bench: Bench) -> None:
    """Ours, as the first thing that a process does: into memory that is new to it, with the start
    of the engine, and without another look at every byte, as fio reads."""
    timed_alone(bench, FIRST_LOAD, bench.path("ferry"))


@case("memory small")
def small_pages(bench: Bench) -> None:
    """As much new memory, and nothing else: what a first load has to wait for at the least."""
    timed_alone(bench, NEW_MEMORY, mmap.MADV_NOHUGEPAGE, bench.shape[0])


@case("memory huge")
def huge_pages(bench: Bench) -> None:
    """The same in huge pages."""
    timed_alone(bench, NEW_MEMORY, mmap.MADV_HUGEPAGE, bench.shape[0])


@case("ferry.load mmap")
def ferry_map(bench: Bench) -> None:
    """Ours, mapped."""
    import tensorferry as ferry

    bench.loaded("ferry.load mmap", lambda: ferry.load(bench.path("ferry"), mmap=True))


@case("torch.load")
def torch_load(bench: Bench) -> None:
    """torch's, into memory."""
    import torch

    bench.loaded("torch.load", lambda: torch.load(bench.path("torch"), weights_only=True))


@case("torch.load mmap")
def torch_map(bench: Bench) -> None:
    """torch's, mapped."""
    import torch

    path = bench.path("torch")
    bench.loaded("torch.load mmap", lambda: torch.load(path, weights_only=True, mmap=True))


@case("safetensors.load_file")
def safetensors_load(bench: Bench) -> None:
    """The rival's usual way, which maps the file."""
    from safetensors.torch import load_file

    bench.loaded("safetensors.load_file", lambda: load_file(bench.path("safetensors")))


@case("safetensors.load_file pread")
def safetensors_read(bench: Bench) -> None:
    """The rival's other way, which reads into memory; only newer versions have it."""
    from safetensors.torch import load_file

    path = bench.path("safetensors")
    bench.loaded("safetensors.load_file pread", lambda: load_file(path, backend="pread"))


@case("dcp.load")
def dcp_load(bench: Bench) -> None:
    """torch.distributed.checkpoint, into tensors that are there already."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    target = bench.touched_copy()

    def work() -> State:
        reader = FileSystemReader(bench.path("dcp"))
        load(target, storage_reader=reader, no_dist=True)
        return target

    bench.loaded("dcp.load", work)


@case("ferry.save_async")
def ferry_save_async(bench: Bench) -> None:
    """How long the caller is held; the whole save is told beside it."""
    import tensorferry as ferry

    state, path = bench.state(), bench.fresh("ferry")
    start = time.perf_counter()
    job = bench.timed(lambda: ferry.save_async(state, path))
    job.wait()
    bench.measured["total_seconds"] = time.perf_counter() - start


@case("copy_")
def copy_into(bench: Bench) -> None:
    """The same bytes copied into memory that is there already: what no snapshot undercuts."""
    state, target = bench.state(), bench.touched_copy()

    def work() -> None:
        for name, tensor in state.items():
            target[name].copy_(tensor)

    bench.timed(work)


@case("clone")
def clone(bench: Bench) -> None:
    """The same bytes copied into new memory: what a snapshot costs who keeps no memory for it."""
    state = bench.state()
    bench.timed(lambda: {name: tensor.clone() for name, tensor in state.items()})


@case("count alone")
def count_alone(bench: Bench) -> None:
    """A Python loop by itself."""
    deadline = time.perf_counter() + COUNT_SECONDS
    bench.measured["count"] = bench.timed(
        lambda: count_until(lambda: time.perf_counter() >= deadline)
    )


@case("count during save_async")
def count_saving(bench: Bench) -> None:
    """The same loop, from the moment in which the caller may go on until the save is done."""
    import tensorferry as ferry

    job = ferry.save_async(bench.state(), bench.fresh("ferry"))
    done = threading.Event()
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            job.wait()
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    bench.measured["count"] = bench.timed(lambda: count_until(done.is_set))
    waiter.join()
    if failures:
        raise failures[0]


def count_until(stop: Callable[[], bool]) -> int:
    """How far one gets; looks up seldom enough for that not to matter."""
    count = 0
    while True:
        for _ in range(COUNT_STEP):
            count += 1
        if stop():
            return count


def answer(bench: Bench, line: str) -> dict[str, Any]:
    """Does what a line asks for."""
    try:
        request = json.loads(line)
        name, shape = request["case"], (int(request["bytes"]), int(request["tensors"]))
    except (ValueError, KeyError, TypeError) as error:
        return {"error": f"not a request: {describe(error)}"}
    if name == "forget":
        bench.kept, bench.proven = None, set()
        return {}
    if name not in CASES:
        return {"error": f"no such case: {name}"}
    if shape != bench.shape:
        bench.shape, bench.kept, bench.proven = shape, None, set()
    try:
        return measure(bench, name, bool(request.get("memory")))
    except Exception as error:
        return {"error": describe(error)}


def measure(bench: Bench, name: str, memory: bool) -> dict[str, Any]:
    """Does a case once; with ``memory``, tells how much more of it was used at the most."""
    bench.measured = {"bytes": bench.shape[0]}
    if memory:
        warm_up(name, bench)
        reset_peak()
        before = status("VmRSS")
    CASES[name](bench)
    if memory:
        bench.measured["extra_bytes"] = max(status("VmHWM") - before, 0)
    return bench.measured


def warm_up(name: str, bench: Bench) -> None:
    """Imports, and the state to save, are there before memory is looked at."""
    for module in ("tensorferry", "torch.distributed.checkpoint", "safetensors.torch"):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    if "load" not in name or name.startswith("dcp"):
        bench.state()


def reset_peak() -> None:
    """Lets the kernel forget the largest size so far."""
    Path("/proc/self/clear_refs").write_text("5")


def status(field: str) -> int:
    """Bytes, as the kernel tells them of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"/proc/self/status has no {field}")


def describe(error: BaseException) -> str:
    """One line: rivals' errors can have many."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]


def versions() -> dict[str, str | None]:
    """What is installed here; None for what is not."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def serve(bench: Bench) -> None:
    """Answers until the input ends."""
    # Whatever a library prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    files = {name: str(bench.path(name)) for name in FILES}
    hello = {"directory": str(bench.directory), "files": files, "versions": versions()}
    print(json.dumps(hello), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(bench, line)), file=answers, flush=True)


def main() -> int:
    """Serves on standard input and output."""
    arguments = argparse.ArgumentParser(prog="tensorferry_bench.checkpoint")
    where = arguments.add_mutually_exclusive_group(required=True)
    where.add_argument("--under", type=Path)
    where.add_argument("--in", type=Path, dest="inside")
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    own = tempfile.mkdtemp(prefix=".tensorferry-bench-", dir=given.under) if given.under else None
    try:
        serve(Bench(Path(own) if own else given.inside))
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    finally:
        if own:
            shutil.rmtree(own, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
