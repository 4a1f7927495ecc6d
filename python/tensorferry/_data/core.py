"""The engine of datasets that the core reads by itself."""

from __future__ import annotations

import json
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tensorferry import _lib, _machine
from tensorferry._data.arguments import threads_default
from tensorferry._data.bad import BadSample
from tensorferry._data.calls import check_may_wait, tensor
from tensorferry._data.engine import FRESH, Batch, EngineStats, Options, Resume, Run, Stage
from tensorferry._data.timeouts import DataTimeout
from tensorferry._data.transforms import Transform, check
from tensorferry._errors import Closed, Error, InvalidInput, NotFound
from tensorferry._structure.dtypes import BY_NAME

LOAD_AHEAD_BYTES = 256 << 20
"""Stored bytes that are read ahead of the threads that prepare them, at most."""

REMOTE_THREADS = 16
"""More threads for a remote dataset, unless told otherwise: as many reads as are under way."""

FLIGHT = 2
"""Samples of a remote dataset that are asked for ahead, for each thread."""

CACHE_SHARE = 4
"""A remote dataset's cache takes this part of the free memory, unless told otherwise; the processes
of a job on one machine share it."""

DISK_SHARE = 2
"""A cache on an SSD takes this part of the free disk, unless told otherwise; so do all caches
there together."""

PLAIN = {
    "seed": 0,
    "prepare_ahead": 1,
    "load_ahead_bytes": LOAD_AHEAD_BYTES,
    "workers": 1,
    "threads": "auto",
    "on_error": "raise",
    "cache_policy": "belady",
    "cache_bytes": 0,
    "cache_dir": None,
    "decoded": False,
}
"""How the core loads, but for what a loader says."""


SPENT: tuple[Stage, ...] = ("storage", "decode", "python")
"""What the core says of the time of its threads, in this order."""


class Core:
    """Hands indices to the core's threads, and makes tensors of what comes back."""

    def __init__(self, source: _lib.Source, options: Options) -> None:
        if options.storage_options:
            what = "storage_options= belongs to the dataset that opens the store"
            raise InvalidInput(f"{what}: ImageFolder(root, storage_options=...)")
        self._source, self._options = source, options
        self._is_remote = source.is_remote()
        self._orders: Sequence[torch.Tensor] = ()
        self._runs: weakref.WeakSet[CoreRun] = weakref.WeakSet()
        self._is_closed = False
        self._process = os.getpid()
        self._seed = options.seed
        self._loader = self._make()

    def _make(self) -> _lib.Loader:
        options = self._options
        steps = _steps(options.transform, options.max_pixels)
        how = {
            "seed": self._seed % (1 << 64),
            "prepare_ahead": _prepare_ahead(options),
            "workers": self._workers(),
            "threads": options.threads,
            "on_error": options.on_error,
            "cache_policy": options.cache_policy,
            "cache_bytes": _cache_bytes(options, is_remote=self._is_remote),
            "cache_dir": _cache_dir(options),
            "decoded": options.cache == "decoded",
        }
        return _lib.Loader(self._source, steps, {**PLAIN, **how})

    def _workers(self) -> int:
        """Threads that wait for a network take no processor: there may be more of them."""
        options = self._options
        more = REMOTE_THREADS if self._is_remote and not options.workers_given else 0
        return max(1, options.num_workers) + more

    def begin(self, epoch: int, *, seed: int, base_seed: int, resume: Resume = FRESH) -> Run:
        """Starts an epoch; in a forked child, with threads of its own."""
        if self._is_closed:
            raise Closed("this DataLoader is closed")
        if (self._process, self._seed) != (os.getpid(), seed):
            # A seed that is drawn is known when the first epoch begins.
            self._process, self._seed = os.getpid(), seed
            self._loader = self._make()
        if self._loader.caches():
            self._loader.foresee(epoch, [order.contiguous().numpy() for order in self._orders])
        run = CoreRun(self._loader.begin(epoch), epoch, self._options, len(self._source))
        self._runs.add(run)
        return run

    @property
    def foresees(self) -> bool:
        """Whether anything is kept near: without it, what comes does not matter."""
        return self._loader.caches()

    @property
    def ahead(self) -> int:
        """Over a network: as many samples as all threads can wait for, however small a batch is."""
        options = self._options
        size = options.batch_size if options.batched else 1
        if not self._is_remote or size is None:
            return options.ahead
        return max(options.ahead, -(-FLIGHT * self._workers() // size))

    def foresee(self, orders: Sequence[torch.Tensor]) -> None:
        """What comes, for the cache of the epoch that begins next."""
        self._orders = orders

    def stats(self) -> EngineStats:
        """What the core counted."""
        stats = json.loads(self._loader.stats())
        hits = {
            "memory": stats["memory_hits"],
            "disk": stats["disk_hits"],
            "backend": stats["backend_loads"],
        }
        threads = {"loading": stats["load_threads"], "preparing": stats["prepare_threads"]}
        return EngineStats(
            threads=threads,
            cache_hits=hits,
            predicted=_known(stats["predicted_batch_seconds"]),
            measured=_known(stats["measured_batch_seconds"]),
        )

    def close(self) -> None:
        """Ends its runs. The core's threads serve other loaders."""
        self._is_closed = True
        for run in list(self._runs):
            run.close()


class CoreRun:
    """One epoch."""

    def __init__(self, run: _lib.Run, epoch: int, options: Options, length: int) -> None:
        self._run, self._epoch, self._options = run, epoch, options
        self._length = length
        self._number = 0
        self._refused: deque[Exception | None] = deque()
        weakref.finalize(self, run.close)

    def submit(self, indices: Sequence[Any]) -> None:
        """A user's own collate_fn gets samples, so each is a batch of its own for the core."""
        refused = None
        try:
            try:
                self._run.submit(list(indices), _is_apart(self._options))
            except OverflowError:
                # Some are counted from the end, or are nowhere.
                self._run.submit(list(map(self._placed, indices)), _is_apart(self._options))
        except (TypeError, IndexError, InvalidInput) as error:
            refused = error
        self._refused.append(refused)

    def _placed(self, index: int) -> int:
        if not -self._length <= index < self._length:
            raise IndexError(f"there is no sample {index} among {self._length}")
        return index % self._length

    def next(self, timeout: float | None) -> Batch:
        """Waits for what becomes of a submission."""
        taken = self._refused[0] or self._taken(timeout)
        self._refused.popleft()
        self._number += 1
        number = self._number - 1
        if isinstance(taken, Exception):
            return Batch(number, None, 0, taken)
        batches, faults, spent = taken
        seconds: dict[Stage, float] = dict(zip(SPENT, spent, strict=True))
        bad = [self._fault(*fault) for fault in faults]
        try:
            data = self._finish(batches, seconds)
        except Exception as failed:
            return Batch(number, None, 0, failed, bad, seconds)
        return Batch(number, data, sum(size for size, *_ in batches), None, bad, seconds)

    def _taken(self, timeout: float | None) -> tuple[Any, Any, Any] | Error:
        """Batches, bad samples and seconds of a submission, or what is wrong with it."""
        check_may_wait()
        try:
            taken = self._run.next(timeout)
        except Closed:
            raise
        except Error as failed:
            return failed
        if taken is None:
            raise DataTimeout(self._timed_out(timeout))
        return taken

    def _timed_out(self, timeout: float | None) -> str:
        what = f"no batch after {timeout} seconds: {self._run.held_up_by()}"
        return f"{what}. The store may hang or be slower than timeout= allows"

    def _finish(self, batches: Sequence[Any], seconds: dict[Stage, float]) -> Any:
        """What the user gets. His own function is timed as Python, the rest as the hand-over."""
        options, began = self._options, time.perf_counter()
        samples = [_structure(size, columns, labels) for size, labels, columns in batches]
        made = time.perf_counter()
        if options.batched and options.collate_fn is not None:
            data = options.collate_fn([_alone(sample) for sample in samples])
        elif options.batched:
            data = samples[0]
        else:
            data = _alone(samples[0])
            data = data if options.collate_fn is None else options.collate_fn(data)
        collated = time.perf_counter()
        if options.pin is not None:
            data = options.pin(data)
        own = 0.0 if options.collate_fn is None else collated - made
        seconds["python"] += own
        seconds["hand-over"] = time.perf_counter() - began - own
        return data

    def _fault(self, index: int, name: str, reason: str, instead: int | None) -> BadSample:
        return BadSample(self._epoch, index, f"{name}: {reason}"[:400], instead)

    def close(self) -> None:
        """Throws away what is under way."""
        self._run.close()


def _is_apart(options: Options) -> bool:
    """Whether each sample is a batch of its own for the core."""
    return options.batched and options.collate_fn is not None


def _prepare_ahead(options: Options) -> int:
    """Batches that are prepared ahead: ``prefetch_factor``, or more of small ones."""
    if not options.batched:
        return options.ahead
    workers = max(1, options.num_workers)
    batches = max(1, -(-options.ahead // workers))
    if options.batch_size is None:
        return batches
    # Small batches: enough of them that every thread has a sample.
    return min(options.ahead, max(batches, -(-workers // options.batch_size)))


def _known(seconds: float | None) -> dict[str, float]:
    return {} if seconds is None else {"seconds a batch": seconds}


def one(source: _lib.Source, index: int) -> Any:
    """One sample, by the calling thread: a transform may ask for one in a thread of the core's."""
    labels, columns = source.alone(index)
    return _alone(_structure(1, columns, labels))


class Apart:
    """Samples prepared one by one, for torch's own loader; many of them at once, side by side.

    What is random follows from torch's global generator, which torch seeds in its workers: so it
    repeats as a transform in Python would."""

    def __init__(
        self, source: _lib.Source, transform: Any, max_pixels: int | None, on_error: str
    ) -> None:
        self._source, self._steps = source, _steps(transform, max_pixels)
        # Nobody here may get fewer samples than were asked for.
        self._on_error = "substitute" if on_error == "substitute" else "raise"
        self._process = os.getpid()
        self._loader = self._make()

    def _make(self) -> _lib.Loader:
        how = {"on_error": self._on_error, "workers": threads_default()}
        return _lib.Loader(self._source, self._steps, {**PLAIN, **how})

    def samples(self, indices: Sequence[int]) -> list[Any]:
        """Those samples."""
        check_may_wait()
        if self._process != os.getpid():
            # In a worker process that was forked, with threads of its own.
            self._process, self._loader = os.getpid(), self._make()
        run = self._loader.begin(int(torch.randint(1 << 32, ())))
        try:
            run.submit(list(indices), True)
            taken = run.next(None)
            assert taken is not None
            return [_alone(_structure(size, columns, labels)) for size, labels, columns in taken[0]]
        finally:
            run.close()


def _steps(transform: Any, max_pixels: int | None) -> list[str | Callable[[Any], Any]]:
    steps = [] if transform is None else _chain(transform).steps()
    if max_pixels is not None and not any('"Decode"' in str(step) for step in steps):
        steps.insert(0, json.dumps({"name": "Decode", "max_pixels": max_pixels}))
    return steps


def _chain(transform: Any) -> Transform:
    from tensorferry._data.transforms import Compose

    return Compose(transform) if isinstance(transform, list | tuple) else check(transform)


def _cache_bytes(options: Options, *, is_remote: bool) -> int:
    """Local files are in the kernel's cache already; what is far away is worth keeping."""
    if options.cache_limit is not None:
        return options.cache_limit
    if not is_remote:
        return 0
    processes = _machine.processes(options.world_size)
    return _machine.free_memory_bytes() // CACHE_SHARE // processes


def _cache_dir(options: Options) -> tuple[str, int, int] | None:
    """The directory, how much it may hold, and how much of what is free is left to others."""
    directory = options.cache_dir
    if directory is None:
        return None
    if options.cache_dir_limit is not None:
        return directory, options.cache_dir_limit, 0
    try:
        room = os.statvfs(directory)
    except FileNotFoundError as error:
        what = f"cache_dir= is a directory that exists, and {directory!r} does not"
        raise NotFound(f"{what}; make it first") from error
    free = room.f_bavail * room.f_frsize
    # Processes that do not know of one another, and other loaders of this one, stop there too.
    leave = max(1, free - free // DISK_SHARE)
    return directory, free // DISK_SHARE // _machine.processes(options.world_size), leave


def _structure(count: int, columns: Sequence[Any], labels: Any) -> Any:
    """Columns of so many samples as the user sees them: a value for each field, then the label, if
    there are more than one; members of a field by name."""
    fields: dict[int, Any] = {}
    for field, member, *content in columns:
        value = content[0]
        if len(content) == 3:
            dtype, shape, memory = content
            value = tensor(dtype, [count, *shape], memory)
        if member:
            fields.setdefault(field, {})[member] = value
        else:
            fields[field] = value
    values = [fields[field] for field in sorted(fields)]
    if labels is not None:
        dtype, memory = labels
        values.append(torch.frombuffer(memory, dtype=BY_NAME[dtype]))
    return values[0] if len(values) == 1 else tuple(values)


def _alone(batch: Any) -> Any:
    """The sample in a batch of one; numbers become Python's, as a dataset would give them."""
    if isinstance(batch, torch.Tensor):
        first = batch[0]
        return first.item() if first.dim() == 0 else first
    if isinstance(batch, dict):
        return {name: _alone(value) for name, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_alone(value) for value in batch)
    return batch[0]
