"""The seam between a loader and what makes its batches.

An engine is made once for a loader. Each epoch begins a *run* of it; several runs may be open at
once, of one engine or of many. A run is driven by pulling: the iteration submits lists of sample
indices, ``Options.ahead`` (or what the engine wants) beyond what it has taken, and one more before
it waits; then it takes finished batches. So an order may be endless, and memory is bounded by what
the iteration submits.

Ownership: neither loader nor iteration closes an engine that is dropped; an engine lets go of its
threads and memory when nobody refers to it. ``close`` does so at once, and every later call is
``Closed``. A run that is closed or dropped stops working on what was submitted to it.

Forked children: an iteration never calls a run of its parent process. An engine of the parent's may
be asked to ``begin`` in the child; it works or raises, but never hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from tensorferry._data.bad import BadSample

if TYPE_CHECKING:
    import torch

OnError: TypeAlias = Literal["raise", "skip", "substitute"]
Stage: TypeAlias = Literal["storage", "decode", "python", "hand-over", "consumer"]

STAGES: tuple[Stage, ...] = ("storage", "decode", "python", "hand-over", "consumer")


@dataclass(frozen=True, slots=True)
class Options:
    """What a loader was asked for, judged; all that an engine may want to know."""

    batch_size: int | None
    """None: a sampler says what a batch is, or there are none."""
    batched: bool
    """Whether a submission is a batch, or one sample that stays as it is."""
    drop_last: bool
    shuffle: bool
    transform: Any
    seed: int
    """What substitutes of bad samples follow from, in datasets in Python."""
    num_workers: int
    """Processes or threads. The user's number, or a default that suits the dataset."""
    workers_given: bool
    """Whether it is the user's."""
    workers: Literal["processes", "threads"]
    """What they are, for datasets in Python."""
    ahead: int
    """Batches that are submitted at most before the first of them is taken; at least 1."""
    collate_fn: Callable[[Any], Any] | None
    """None: torch's."""
    pin: Callable[[Any], Any] | None
    """Only where there is an accelerator that it helps."""
    in_order: bool
    """Whether batches come in the order of submission, or as they are ready."""
    persistent_workers: bool
    prefetch_factor: int | None
    timeout: float
    """Seconds, as the loader's; 0: for ever. Torch's workers must know it beforehand."""
    multiprocessing_context: Any
    worker_init_fn: Callable[[int], None] | None
    on_error: OnError
    rank: int
    world_size: int
    cache_limit: int | None
    """Bytes; None: what suits the machine."""
    cache_policy: str
    cache: Literal["raw", "decoded"]
    cache_dir: str | None
    cache_dir_limit: int | None
    """Bytes there; None: what suits the disk."""
    threads: Literal["auto", "static"]
    storage_options: Mapping[str, Any]
    max_pixels: int | None


@dataclass(frozen=True, slots=True)
class Batch:
    """What became of one submission."""

    number: int
    """Which submission of its run, from 0."""
    data: Any
    samples: int
    """Samples in ``data``."""
    error: BaseException | None = None
    """Why there is no batch; raised to the user, who may go on with the next."""
    bad: Sequence[BadSample] = ()
    """Samples that were skipped or substituted, in the order of the batch."""
    seconds: Mapping[Stage, float] = field(default_factory=dict)
    """Time of threads by stage; the iteration itself adds the consumer's."""
    ended: bool = False
    """There is no batch because the data of its worker is over; it never has another."""
    worker: int = 0
    """Which worker made it, where each keeps a state of its own."""
    dataset_state: Any = None
    """The state of its worker's dataset after it, if that must be known to go on after it."""

    def pin_memory(self) -> Batch:
        """The same in page-locked memory: torch's thread for that asks whatever it does not know
        by this name."""
        from torch.utils.data._utils.pin_memory import pin_memory

        return replace(self, data=pin_memory(self.data))  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What an engine knows about itself; all of it may be empty."""

    threads: Mapping[str, int] = field(default_factory=dict)
    """Threads by what they do at present, e.g. loading and preparing."""
    cache_hits: Mapping[str, int] = field(default_factory=dict)
    """Samples found, by tier; ``backend`` for those found in none."""
    predicted: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)
    """The same names as ``predicted``: what the plan said, and what came."""


@dataclass(frozen=True, slots=True)
class Resume:
    """How far an earlier run of the epoch came, for datasets that must know."""

    dataset_states: Sequence[Any] = ()
    """What the last batch of each worker named; None for one without; nothing, if no batch did."""
    batches: int = 0
    """Submissions before: workers that each read a part of the data take turns."""

    def dataset_state_of(self, worker: int) -> Any:
        """That of one worker."""
        return self.dataset_states[worker] if self.dataset_states else None


FRESH = Resume()


class Run(Protocol):
    """One epoch's work."""

    def submit(self, indices: Sequence[Any]) -> None:
        """Asks for a batch of these samples. Does not wait. The list is the engine's to keep."""

    def next(self, timeout: float | None) -> Batch:
        """The next batch, by order of submission or of being ready, as the options say.

        Called only while a submission is outstanding. ``Timeout`` after ``timeout`` seconds (the
        same batch can be waited for again), ``Closed`` after or during ``close``,
        ``StopIteration`` if the data ends before the order does. What is wrong with a batch is no
        exception here, but in it. Control-C must get through.
        """

    def close(self) -> None:
        """Stops. May be called twice, by any thread, and by a finalizer."""


class Engine(Protocol):
    """Makes batches of samples."""

    def begin(self, epoch: int, *, seed: int, base_seed: int, resume: Resume = FRESH) -> Run:
        """Starts an epoch. All randomness of samples that the core prepares comes from ``seed``,
        ``epoch`` and their indices; ``base_seed`` is what torch's loader hands to its workers."""

    def stats(self) -> EngineStats:
        """What it knows about itself, at any time."""

    def close(self) -> None:
        """Stops its threads and gives back its memory."""


@runtime_checkable
class Foreseeing(Protocol):
    """An engine that plans ahead."""

    @property
    def ahead(self) -> int:
        """Batches that it wants submitted before the first is taken, ``Options.ahead`` or more."""

    @property
    def foresees(self) -> bool:
        """Whether it wants to know orders: they take time to work out."""

    def foresee(self, orders: Sequence[torch.Tensor]) -> None:
        """Before an epoch begins: the indices that this rank will submit in it and, where they are
        known, in those after, each an int64 tensor in order. Nothing, where nothing is known. A
        ``break``, ``set_epoch`` or ``load_state_dict`` may make all but the first wrong; then the
        next call says so."""
