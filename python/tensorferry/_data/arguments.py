"""What a loader is asked for, judged; the same mistakes are errors as in torch's loader.

The arguments are listed once, in the signature of ``DataLoader.__init__``: torch's, in torch's
order, and then ours. From there on they go by name: torch's to torch's loader, ours to attributes,
and what engines want to know to ``Options``.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Self, get_args

import torch.utils.data

from tensorferry._data import dataset_state
from tensorferry._data.choice import has_engine, is_iterable
from tensorferry._data.engine import OnError
from tensorferry._errors import InvalidInput
from tensorferry._lib import parse_size

TORCHS = frozenset(inspect.signature(torch.utils.data.DataLoader.__init__).parameters)
"""Names of the arguments that torch's loader takes."""

POLICIES = ("lru", "never-evict", "nopfs", "lobster", "belady")

WORKERS_DEFAULT_MAX = 8
"""Threads by default, at most."""


class Arguments(SimpleNamespace):
    """All of them, under their names."""

    _defaults: Mapping[str, Any]

    @classmethod
    def of(cls, function: Callable[..., Any], scope: Mapping[str, Any]) -> Self:
        """Those that a function was called with: ``scope`` is its ``locals()`` at the start."""
        parameters = dict(inspect.signature(function).parameters)
        del parameters["self"]
        arguments = cls(**{name: scope[name] for name in parameters})
        arguments._defaults = {name: each.default for name, each in parameters.items()}
        return arguments

    @property
    def ours(self) -> dict[str, Any]:
        """Those that torch's loader does not take."""
        return {name: vars(self)[name] for name in self._defaults if name not in TORCHS}

    def judge(self) -> None:
        """What makes no sense is refused."""
        check_choices(**{name: getattr(self, name) for name in CHOICES})
        check_numbers(self.batch_size, self.seed, self.max_pixels)
        cache_bytes(self.cache_limit)
        samplers = (self.sampler, self.batch_sampler)
        check_samplers(self.batch_size, self.shuffle, *samplers, self.drop_last)
        if has_engine(self.dataset):
            check_own(self.dataset, self.workers)
        else:
            check_dataset(self.dataset)
            changed = [name for name in ONLY_OURS if getattr(self, name) != self._defaults[name]]
            refuse_kind(self.dataset, changed)
            if is_iterable(self.dataset):
                check_iterable(self.shuffle, *samplers, self.on_error)
        check_workers(self.number_of_workers, self.timeout, self.persistent_workers)

    @property
    def number_of_workers(self) -> int:
        """Given, or what suits the dataset."""
        return workers(self.num_workers, are_threads=self._are_threads)

    @property
    def _are_threads(self) -> bool:
        return are_threads(self.workers, self.dataset)

    def division(self) -> tuple[int, int]:
        """Rank and number of ranks; asks torch.distributed if the user says nothing."""
        is_own = self.sampler is None and self.batch_sampler is None
        asks = is_own and self.generator is None and not is_unindexed(self.dataset)
        return division(self.rank, self.world_size, asks=asks, divides=is_own)

    def seeds(self, world_size: int) -> tuple[int | None, int | None]:
        """The seed of the order, and that of transforms and substitutes; None is drawn later, or
        for the order by torch."""
        if self.seed is not None:
            return self.seed, self.seed
        return 0 if world_size > 1 else None, None if has_engine(self.dataset) else 0

    def for_torch(self) -> dict[str, Any]:
        """What torch's loader is given."""
        number, threads = self.number_of_workers, self._are_threads
        made = {
            "dataset": self._prepared_dataset(),
            "num_workers": number,
            "multiprocessing_context": None if threads else self.multiprocessing_context,
            "prefetch_factor": prefetch(self.prefetch_factor, number, are_processes=not threads),
        }
        return {name: vars(self)[name] for name in self._defaults if name in TORCHS} | made

    def _prepared_dataset(self) -> Any:
        """The dataset, or one of ours that knows the transform: for those who take the loader apart
        and read the dataset themselves."""
        prepared = getattr(self.dataset, "_prepared", None)
        if prepared is None or (self.transform is None and self.max_pixels is None):
            return self.dataset
        return prepared(self.transform, self.max_pixels, self.on_error)

    def warn(self) -> None:
        """Of what has no effect."""
        kind = type(self.dataset).__name__
        is_stateful = dataset_state.is_stateful(self.dataset)
        if self.workers == "threads" and is_stateful and not is_unindexed(self.dataset):
            what = f"the place of a {kind} is not in state_dict(): threads are"
            why = "ahead of what was yielded. With workers= left out, it is"
            _warn(f"{what} {why}")
        if self.worker_init_fn is not None and has_engine(self.dataset):
            what = f"worker_init_fn is not called: a {kind} is read by threads"
            why = "of the core, which run no Python; set up in the transform what a Lambda needs"
            _warn(f"{what} {why}")
        if self.multiprocessing_context is not None and self._are_threads:
            _warn("multiprocessing_context is ignored: workers are threads of this process")


def _warn(what: str) -> None:
    # Of this, warn(), the loader and the user, the user.
    warnings.warn(what, UserWarning, stacklevel=4)


def are_threads(workers: str | None, dataset: object) -> bool:
    """Whether a loader's workers are threads."""
    return workers == "threads" or has_engine(dataset)


def is_unindexed(dataset: object) -> bool:
    """Whether a dataset in Python has no indices."""
    return not has_engine(dataset) and is_iterable(dataset)


CHOICES: dict[str, tuple[object, ...]] = {
    "on_error": get_args(OnError),
    "workers": (None, "processes", "threads"),
    "cache_policy": POLICIES,
    "cache": ("raw", "decoded"),
    "threads": ("auto", "static"),
    "progress": (False, True, "force"),
    "drop_last": (False, True),
    "shuffle": (False, True, None),
}


def check_choices(**chosen: object) -> None:
    """Arguments that are one of a few words."""
    for name, value in chosen.items():
        if not any(value is each or value == each for each in CHOICES[name]):
            choices = ", ".join(repr(each) for each in CHOICES[name])
            raise InvalidInput(f"{name} should be one of {choices}, but got {name}={value!r}")


def check_numbers(batch_size: int | None, seed: int | None, max_pixels: int | None) -> None:
    """Arguments that are numbers, or None."""
    if batch_size is not None and (type(batch_size) is not int or batch_size < 1):
        what = "batch_size should be a positive integer value"
        raise InvalidInput(f"{what}, but got batch_size={batch_size!r}")
    if seed is not None and type(seed) is not int:
        raise InvalidInput(f"seed should be an integer value or None, but got seed={seed!r}")
    if max_pixels is not None and (type(max_pixels) is not int or max_pixels < 1):
        what = "max_pixels should be a positive integer value or None"
        raise InvalidInput(f"{what}, but got max_pixels={max_pixels!r}")


def workers(asked: int | None, *, are_threads: bool) -> int:
    """The number of workers: by default as many threads as there are processors, no processes."""
    if asked is None:
        return threads_default() if are_threads else 0
    if type(asked) is not int or asked < 0:
        what = f"num_workers option should be non-negative, not {asked!r}"
        raise InvalidInput(f"{what}; num_workers=0 loads in the calling thread")
    return asked


def threads_default() -> int:
    """Threads where the user says nothing."""
    return max(1, min(len(os.sched_getaffinity(0)), WORKERS_DEFAULT_MAX))


def check_workers(num_workers: int, timeout: float, persistent: bool) -> None:
    """What makes sense with workers only."""
    if not isinstance(timeout, int | float) or not timeout >= 0:
        raise InvalidInput(f"timeout option should be non-negative, not {timeout!r}")
    if timeout and num_workers == 0:
        what = "timeout needs num_workers > 0: the calling thread can't leave a sample it waits for"
        raise InvalidInput(what)
    if persistent and num_workers == 0:
        raise InvalidInput("persistent_workers option needs num_workers > 0")


def prefetch(factor: int | None, num_workers: int, *, are_processes: bool) -> int | None:
    """Batches ahead for each worker."""
    if num_workers == 0:
        if factor is not None:
            what = f"prefetch_factor={factor!r} needs num_workers > 0"
            raise InvalidInput(f"{what}; without workers nothing is loaded ahead")
        return None
    if factor is None:
        return 2
    if type(factor) is not int or factor < 0:
        raise InvalidInput(f"prefetch_factor option should be non-negative, not {factor!r}")
    if factor == 0 and are_processes:
        raise InvalidInput(
            "prefetch_factor=0 leaves worker processes without work; it is 1 or more"
        )
    return factor


def check_own(dataset: object, workers: str | None) -> None:
    """What one of our own datasets can't do."""
    if workers == "processes":
        what = f"a {type(dataset).__name__} is read by threads of the core, not by processes"
        raise InvalidInput(f"{what}; leave workers= out, num_workers= says how many threads")


def refuse_kind(dataset: object, changed: list[str]) -> None:
    """What our own datasets alone understand, asked of a dataset in Python."""
    for name in changed:
        ours = "ImageFolder, TarShards and Files, which the core reads and prepares"
        what = f"{name}= is for {ours}; {ONLY_OURS[name]} this {type(dataset).__name__}"
        raise InvalidInput(what)


ONLY_OURS = {
    "transform": "give a transform of its own to",
    "cache_limit": "nothing is kept near of",
    "cache_policy": "nothing is kept near of",
    "cache": "nothing is kept near of",
    "cache_dir": "nothing is kept near of",
    "cache_dir_limit": "nothing is kept near of",
    "threads": 'num_workers= and workers="threads" say how many threads there are for',
    "storage_options": "settings of a store belong into",
    "max_pixels": "pictures are decoded by",
}
"""Arguments for our own datasets, and what to do with a dataset in Python."""


def check_dataset(dataset: object) -> None:
    """What no loader of ours can read."""
    from torch.utils.data import IterableDataset, IterDataPipe, MapDataPipe

    kind = type(dataset).__name__
    if isinstance(dataset, IterDataPipe | MapDataPipe):
        what = f"{kind} is a datapipe, which torch's own DataLoader alone shuffles and divides"
        raise InvalidInput(f"{what}; use that, or make it an IterableDataset")
    if not isinstance(dataset, IterableDataset) and not hasattr(dataset, "__getitem__"):
        raise InvalidInput(f"a dataset has __getitem__ or is an IterableDataset; {kind} is not")


def division(
    rank: int | None, world_size: int | None, *, asks: bool, divides: bool
) -> tuple[int, int]:
    """Rank and number of ranks; asks torch.distributed if the user says nothing."""
    if rank is None and world_size is None:
        return _distributed() if asks else (0, 1)
    if not divides:
        what = "rank and world_size divide an order of the loader's own"
        raise InvalidInput(f"{what}; give them to your sampler instead")
    if world_size is None:
        raise InvalidInput("rank without world_size; give both")
    if rank is None and world_size != 1:
        raise InvalidInput("world_size without rank; give both")
    rank = rank or 0
    for name, value in (("rank", rank), ("world_size", world_size)):
        if type(value) is not int:
            raise InvalidInput(f"{name} is a number, not {value!r}")
    if world_size < 1:
        raise InvalidInput(f"world_size is at least 1, not {world_size}")
    if not 0 <= rank < world_size:
        raise InvalidInput(f"Invalid rank {rank}, rank should be in [0, {world_size - 1}]")
    return rank, world_size


def _distributed() -> tuple[int, int]:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def cache_bytes(limit: str | int) -> int | None:
    """A limit in bytes; None: whatever suits the machine."""
    return None if limit == "auto" else parse_size(limit)


def cache_dir_bytes(directory: str | None, limit: str | int) -> int | None:
    """The same for what is kept in a directory."""
    bytes_max = cache_bytes(limit)
    if directory is None and bytes_max is not None:
        what = f"cache_dir_limit={limit!r} bounds what is kept in cache_dir"
        raise InvalidInput(f"{what}; give that too, or cache_limit to bound the memory")
    return bytes_max


def check_iterable(shuffle: Any, sampler: Any, batch_sampler: Any, on_error: str) -> None:
    """An IterableDataset has its own order."""
    for name, value in (
        ("shuffle", shuffle or None),
        ("sampler", sampler),
        ("batch_sampler", batch_sampler),
    ):
        if value is not None:
            what = f"DataLoader with IterableDataset: expected unspecified {name} option"
            raise InvalidInput(f"{what}, but got {name}={value!r}")
    if on_error == "substitute":
        raise InvalidInput("an IterableDataset has no other samples to substitute; use 'skip'")


def check_samplers(
    batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool
) -> None:
    """Options that exclude one another."""
    if sampler is not None and shuffle:
        raise InvalidInput("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            what = "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler"
            raise InvalidInput(f"{what}, and drop_last")
    elif batch_size is None and drop_last:
        what = "batch_size=None option disables auto-batching"
        raise InvalidInput(f"{what} and is mutually exclusive with drop_last")
