"""``DataLoader``: judges its arguments, chooses order and engine, keeps its position."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import fields, replace
from typing import Any, Literal

import torch
import torch.utils.data
from torch.utils.data import default_collate, default_convert
from typing_extensions import TypeVar

from tensorferry._data import arguments, choice, dataset_state, order, rng
from tensorferry._data.arguments import Arguments
from tensorferry._data.bad import Ledger
from tensorferry._data.engine import OnError, Options
from tensorferry._data.iteration import Iteration
from tensorferry._data.pin import pinner
from tensorferry._data.position import Position
from tensorferry._data.progress import Shown
from tensorferry._data.samplers import SeededSampler
from tensorferry._data.state import State
from tensorferry._data.stats import Meter, Stats
from tensorferry._errors import Closed, InvalidInput

_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")
"""What torch's loader does not let one change either."""

_READ_ANEW = (
    "num_workers",
    "prefetch_factor",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "in_order",
)
"""What may be changed, for the iterations that begin afterwards."""


_T_co = TypeVar("_T_co", covariant=True, default=Any)


class DataLoader(torch.utils.data.DataLoader[_T_co]):
    """Batches of a dataset, in torch's order. It is a torch ``DataLoader``, with its arguments.

    ``dataset``: one of ours (``ImageFolder``, ``TarShards``, ``Files``), whose samples the threads
    of the core read and prepare without Python; any map-style dataset; or an ``IterableDataset``.

    **Workers** of datasets in Python are torch's: ``num_workers=0``, the default, loads in the
    calling thread; ``num_workers=N`` in as many processes, with torch's ``worker_init_fn``,
    ``get_worker_info()``, ``multiprocessing_context``, ``persistent_workers``, ``prefetch_factor``,
    ``timeout`` and ``in_order``; each reads an ``IterableDataset`` whole unless it divides itself.
    ``workers="threads"`` has threads use the one dataset object, which must be written for that:
    no shared handles, no global random numbers; of an ``IterableDataset``, one thread. Our own
    datasets are always read by threads, by default as many as there are processors, at most 8.

    **Order.** Without ``seed``, ``generator`` and sampler, in one process: of datasets in Python
    that of torch's loader, drawn from torch's global generator when torch draws it; of our own
    that of a seed which is drawn from it once, before the first epoch. With several ranks, or a
    ``seed``: that of ``DistributedSampler(seed=seed)``, padded alike, for ``rank`` of
    ``world_size``, which are asked of torch.distributed if it is initialised, and are otherwise 0
    of 1. With ``generator=g``: that of torch's ``DataLoader(shuffle=True, generator=g)``. With a
    ``sampler`` or ``batch_sampler``: its own, read ahead. With a generator or a sampler the order
    is divided between ranks only if ``world_size`` is given. ``drop_last`` drops a rank's last
    batch if it is not full. ``sampler`` and ``batch_sampler`` of the loader are not divided, so
    that Lightning and Accelerate can divide them.

    **Epochs** advance by themselves: each new iteration is the next epoch, also after a ``break``.
    ``set_epoch(e)`` says which one the next iteration is, as ``DistributedSampler.set_epoch`` does.

    **Bad samples**, ``on_error``: ``"raise"`` names the sample; ``"skip"`` leaves it out, its batch
    is smaller, and of a batch of nothing but bad samples each is substituted; ``"substitute"``
    takes another, chosen by seed, epoch and index. A rank gets as many batches as ``len`` says, or
    an error. ``stats()`` and ``state_dict()`` name what was skipped or substituted.

    **Resuming.** ``state_dict()`` counts the batches that were yielded; a loader that loads it
    yields exactly the others of that epoch. With another ``world_size`` or ``batch_size``, what
    remains of the epoch is divided anew, each sample coming once; where some ranks would then get
    one batch more than others, these get one sample again. A dataset, or the iterator of an
    ``IterableDataset``, that has ``state_dict`` and ``load_state_dict`` is asked for its place in
    each worker and brought back to it; other iterables are read again up to where they were,
    and refused if they do not repeat themselves.

    ``timeout`` bounds the wait for a batch, in seconds. ``transform``, ``cache_limit``,
    ``cache_policy``, ``cache``, ``cache_dir``, ``cache_dir_limit``, ``threads``,
    ``storage_options`` and ``max_pixels`` are for our own datasets. ``progress=True`` shows a
    line on a terminal (``"force"``: anywhere).
    """

    _initialized = False

    # For type checkers; torch declares its own. A test compares this with the signature.
    transform: Any
    seed: int | None
    workers: Literal["processes", "threads"] | None
    rank: int | None
    world_size: int | None
    on_error: OnError
    cache_limit: str | int
    cache_policy: str
    cache: Literal["raw", "decoded"]
    cache_dir: str | None
    cache_dir_limit: str | int
    threads: Literal["auto", "static"]
    storage_options: Mapping[str, Any] | None
    max_pixels: int | None
    progress: Shown

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int | None = None,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        transform: Any = None,
        seed: int | None = None,
        workers: Literal["processes", "threads"] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        on_error: OnError = "raise",
        cache_limit: str | int = "auto",
        cache_policy: str = "belady",
        cache: Literal["raw", "decoded"] = "raw",
        cache_dir: str | None = None,
        cache_dir_limit: str | int = "auto",
        threads: Literal["auto", "static"] = "auto",
        storage_options: Mapping[str, Any] | None = None,
        max_pixels: int | None = None,
        progress: Shown = False,
    ) -> None:
        given = Arguments.of(DataLoader.__init__, locals())
        given.judge()
        # Under the names of the arguments, by which Lightning makes a loader anew.
        vars(self).update(given.ours)
        self._share = given.division()
        given.warn()
        self._seed, self._chance = given.seeds(self._share[1])
        self._samplers = (sampler, batch_sampler)
        self._shuffles = bool(shuffle)
        self._workers_given = num_workers is not None
        if shuffle and generator is None and seed is not None:
            given.shuffle, given.sampler = None, SeededSampler(dataset, seed)
        super().__init__(**given.for_torch())
        self._begin_life()

    def _begin_life(self) -> None:
        """What changes while it is used."""
        self._epoch = 0
        self._ledger = Ledger()
        self._meter = Meter(self._ledger)
        self._position: Position | None = None
        self._loaded: State | None = None
        self._iterations: weakref.WeakSet[Iteration] = weakref.WeakSet()
        self._closed = False
        self._make()
        self._initialized = True

    def _make(self) -> None:
        """Order and engine, as the arguments say now."""
        self._options = self._options_now()
        is_seeded = self._seed is not None or choice.has_engine(self.dataset)
        self._order = choice.order_for(
            self.dataset, *self._samplers, self._options, self.generator, is_seeded
        )
        self._engine = choice.engine_for(self.dataset, self._options, self.collate_fn)
        self._is_stale = False

    def _options_now(self) -> Options:
        """What engines are told: the arguments as they are now, and what follows from them."""
        are_threads = self._are_threads
        arguments.workers(self.num_workers, are_threads=are_threads)
        batched = self._auto_collation
        plain = default_collate if batched else default_convert
        decided: dict[str, Any] = {
            "batched": batched,
            "shuffle": self._shuffles,
            "seed": self._chance or 0,
            "workers_given": self._workers_given,
            "workers": "threads" if are_threads else "processes",
            "ahead": max(1, self.num_workers * (self.prefetch_factor or 0)),
            "collate_fn": None if self.collate_fn is plain else self.collate_fn,
            "pin": pinner(self.pin_memory, self.pin_memory_device),
            "rank": self._share[0],
            "world_size": self._share[1],
            "cache_limit": arguments.cache_bytes(self.cache_limit),
            "cache_dir_limit": arguments.cache_dir_bytes(self.cache_dir, self.cache_dir_limit),
            "storage_options": dict(self.storage_options or {}),
        }
        names = [each.name for each in fields(Options) if each.name not in decided]
        return Options(**{name: getattr(self, name) for name in names}, **decided)

    def check_worker_number_rationality(self) -> None:
        """Warns as torch's loader does of more processes than processors; of threads, nothing."""
        if not self._are_threads:
            super().check_worker_number_rationality()

    def __setattr__(self, name: str, value: Any) -> None:
        if self._initialized and name in _FIXED:
            what = f"{name} attribute should not be set after DataLoader is initialized"
            raise InvalidInput(f"{what}; make another one")
        super().__setattr__(name, value)
        if self._initialized and name in _READ_ANEW:
            self._is_stale = True

    def __len__(self) -> int:
        """Batches of a whole epoch, for this rank."""
        if self._share[1] == 1:
            return super().__len__()
        share = -(-len(self._sized) // self._share[1])
        return order.count(share, self.batch_size, self.drop_last)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """Begins the next epoch, or what is left of the one that was loaded."""
        if self._closed:
            raise Closed("this DataLoader is closed")
        if self._is_stale:
            self._make()
        self._settle()
        start = self._loaded or self._go_on()
        if start.chance is None:
            start = replace(start, seed=self._seed, chance=self._chance)
        self._show_epoch(start.epoch)
        epoch_order = self._order.begin(start.epoch, self._seed, self._loaded)
        self._position = Position(start, epoch_order, self._initial_states())
        # Not before: a state that could not be gone on with is not forgotten.
        self._loaded = None
        self._epoch = start.epoch + 1
        iteration = Iteration(
            self._engine,
            self._position,
            self._meter,
            ahead=self._options.ahead,
            timeout=self.timeout or None,
            in_caller=self.num_workers == 0 and not choice.has_engine(self.dataset),
            total=self._length(),
            said=self._IterableDataset_len_called,
            progress=self.progress,
        )
        self._iterations.add(iteration)
        return iteration

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch; a sampler with ``set_epoch`` is told. After
        ``load_state_dict``, the epoch of the state keeps its place, any other begins anew."""
        self._epoch = epoch
        for holder in self._samplers:
            tell = getattr(holder, "set_epoch", None)
            if callable(tell):
                tell(epoch)
        self._show_epoch(epoch)
        if self._loaded is not None and self._loaded.epoch != epoch:
            anew = replace(self._loaded, epoch=epoch, base=0, batches=0, beyond=[])
            self._loaded = replace(anew, sampler=None, drawn=None, places=[])

    def state_dict(self) -> dict[str, Any]:
        """Where the latest iteration stands, as plain data: what was yielded, not what was read
        ahead. Any rank's will do for all ranks that have yielded as many batches."""
        return replace(self._state(), bad=self._ledger.plain()).plain()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The next iteration goes on where ``state_dict`` was taken. After the last batch of an
        epoch, that is an iteration without batches; after its end, the next epoch."""
        state = State.of(state_dict)
        state.check_fits(replace(self._between(0), seed=self.seed))
        state.check_workers(self._workers)
        if state.chance is None and not choice.has_engine(self.dataset):
            raise InvalidInput("this is no state of a DataLoader: its chance is missing")
        if state.generator is not None:
            rng.check(state.generator)
        elif state.order == "generator":
            raise InvalidInput("this is no state of a DataLoader: its generator is missing")
        state = state.divided(self._share[1], self.batch_size)
        self._ledger.load(state.bad or {})
        if self.seed is None and choice.has_engine(self.dataset):
            self._seed, self._chance = state.seed, state.chance
        self._loaded = state
        if self.persistent_workers and not self._are_threads:
            # Processes that have read of the dataset can't read again what they have read.
            self._is_stale = True
        self._epoch = state.epoch
        self._position = None

    def stats(self) -> Stats:
        """What it did so far, over all epochs."""
        return self._meter.stats(self._engine.stats())

    def close(self) -> None:
        """Ends its iterations and stops its workers at once. Needed by nobody who drops it."""
        self._closed = True
        for iteration in list(self._iterations):
            iteration.close()
        self._engine.close()

    def __getstate__(self) -> dict[str, Any]:
        """All but what changes while it is used, and the epoch: a copy begins where this one would
        begin next."""
        passing = {*_PASSING, "_initialized"}
        return {name: value for name, value in vars(self).items() if name not in passing}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        epoch = self._epoch
        self._begin_life()
        self._epoch = epoch

    @property
    def _are_threads(self) -> bool:
        return arguments.are_threads(self.workers, self.dataset)

    @property
    def _sized(self) -> Sized:
        return self.dataset  # type: ignore[return-value]

    @property
    def _workers(self) -> int:
        """Of those that each keep a place of the dataset."""
        return 1 if self._options.workers == "threads" else max(1, self.num_workers)

    def _settle(self) -> None:
        """Draws what seed there is to draw, and hears which epoch the sampler was told."""
        if self._chance is None:
            self._chance = rng.draw_base_seed(None)
        if self._seed is None and choice.has_engine(self.dataset):
            self._seed = self._chance
        if isinstance(self.sampler, SeededSampler) and self.sampler.epoch_set is not None:
            self.set_epoch(self.sampler.epoch_set)
            self.sampler.epoch_set = None

    def _state(self) -> State:
        if self._loaded is not None:
            return self._loaded
        if self._position is not None and not self._position.ended:
            return self._position.state()
        facts = self._order.facts()
        between = self._between(self._epoch)
        return replace(
            between, generator=facts.generator, sampler=facts.sampler, places=self._initial_states()
        )

    def _go_on(self) -> State:
        """The next epoch. Where the last one was given up, workers have read ahead of what was
        yielded, and datasets that keep a place are brought back to that."""
        between = self._between(self._epoch)
        if self.persistent_workers and self._position is not None and not self._position.ended:
            return replace(between, places=self._initial_states())
        return between

    def _between(self, epoch: int) -> State:
        """The beginning of an epoch."""
        kind = self._order.kind
        return State(
            order=kind,
            length=None if kind == "iterable" else choice.length_of(self.dataset),
            seed=self._seed,
            chance=self._chance,
            shuffle=self._shuffles,
            world_size=self._share[1],
            batch_size=self.batch_size,
            epoch=epoch,
        )

    def _initial_states(self) -> list[Any]:
        """The dataset's states where an epoch begins. In this process, and in workers that persist,
        it goes on from epoch to epoch; other processes begin with copies."""
        is_iterable = arguments.is_unindexed(self.dataset)
        is_here = self.num_workers == 0 or (self._are_threads and is_iterable)
        if is_here and not choice.has_engine(self.dataset):
            return [dataset_state.initial(self.dataset, is_iterable=is_iterable)]
        if self.persistent_workers and self._position is not None:
            return self._position.afterwards(is_iterable=is_iterable)
        return [None] * self._workers

    def _show_epoch(self, epoch: int) -> None:
        if isinstance(self.sampler, SeededSampler):
            self.sampler.epoch = epoch

    def _length(self) -> int | None:
        try:
            if arguments.is_unindexed(self.dataset):
                return order.count(len(self._sized), self.batch_size, self.drop_last)
            return len(self)
        except (TypeError, NotImplementedError):
            return None


_PASSING = (
    "_ledger",
    "_meter",
    "_position",
    "_loaded",
    "_iterations",
    "_closed",
    "_options",
    "_order",
    "_engine",
    "_is_stale",
    "_iterator",
)
"""What a loader has while it is used, and a copy makes for itself."""
