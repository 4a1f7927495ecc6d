"""``DataLoader``: judges its arguments, chooses order and engine, keeps the place."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from tensorferry._data import arguments, choice, order, rng
from tensorferry._data.bad import Ledger
from tensorferry._data.engine import OnError, Options
from tensorferry._data.iteration import Iteration
from tensorferry._data.pin import pinner
from tensorferry._data.progress import Shown
from tensorferry._data.state import State
from tensorferry._data.stats import Meter, Stats
from tensorferry._data.track import Track
from tensorferry._errors import Closed, InvalidInput

if TYPE_CHECKING:
    import torch

_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")
"""What torch's loader does not let one change either."""


class DataLoader:
    """Batches of a dataset, in torch's order, made by threads.

    ``dataset``: one of ours (``ImageFolder``, ``TarShards``, ``Files``), whose samples are read and
    prepared without Python, any map-style dataset, whose ``__getitem__`` runs in threads, or an
    ``IterableDataset``, which one thread reads.

    **Order.** With ``shuffle=True`` and ``generator=g``: that of torch's ``DataLoader(shuffle=True,
    generator=g)``, epoch after epoch; ``g`` is drawn from when torch draws from it. Without a
    generator: that of ``DistributedSampler(seed=seed)``, padded alike, for ``rank`` of
    ``world_size``, which are asked of torch.distributed if it is initialised, and are otherwise 0
    of 1. With a ``sampler`` or ``batch_sampler``: its own, read ahead. With a generator or a
    sampler the order is divided between ranks only if ``world_size`` is given. ``drop_last`` drops
    a rank's last batch if it is not full.

    **Epochs** advance by themselves: each new iteration is the next epoch, also after a ``break``.
    ``set_epoch(e)`` says which one the next iteration is, as ``DistributedSampler.set_epoch`` does.

    **Workers** are threads, ``num_workers`` of them (by default as many as there are processors, at
    most 8); with 0, the caller does the work. ``worker_init_fn(i)`` runs once in each, but for our
    own datasets, whose threads run no Python. They share the process: random transforms that draw
    from the global generators (``random``, ``numpy``, ``torch``) take turns on them in an order
    that depends on timing, and can't be seeded for each worker as torch seeds its processes. Derive
    randomness from the index, or use ``transform=`` with our datasets, where it comes from seed,
    epoch and index. ``multiprocessing_context`` is ignored. ``persistent_workers`` keeps threads
    between epochs.

    **Bad samples**, ``on_error``: ``"raise"`` names the sample; ``"skip"`` leaves it out, its batch
    is smaller; ``"substitute"`` takes another, chosen by seed, epoch and index. ``stats()`` and
    ``state_dict()`` name what was skipped or substituted.

    **Resuming.** ``state_dict()`` counts the batches that were yielded; a loader that loads it
    yields exactly the others of that epoch. With another ``world_size`` or ``batch_size``, what
    remains of the epoch is divided anew, each sample coming once; ranks may then differ by one
    batch at its end, unless ``drop_last``.

    ``timeout`` bounds the wait for a batch, in seconds. ``transform``, ``cache_limit``,
    ``cache_policy``, ``cache``, ``cache_dir``, ``threads``, ``storage_options`` and ``max_pixels``
    are for our own datasets. ``progress=True`` shows a line on a terminal (``"force"``: anywhere).
    """

    _initialized = False

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = False,
        *,
        transform: Any = None,
        seed: int = 0,
        num_workers: int | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        collate_fn: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        generator: torch.Generator | None = None,
        pin_memory: bool = False,
        prefetch_factor: int | None = 2,
        rank: int | None = None,
        world_size: int | None = None,
        cache_limit: str | int = "auto",
        cache_policy: str = "belady",
        on_error: OnError = "raise",
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        persistent_workers: bool = False,
        in_order: bool = True,
        pin_memory_device: str = "",
        progress: Shown = False,
        threads: Literal["auto", "static"] = "auto",
        cache: Literal["raw", "decoded"] = "raw",
        cache_dir: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        max_pixels: int | None = None,
    ) -> None:
        arguments.check_choices(
            on_error=on_error,
            cache_policy=cache_policy,
            cache=cache,
            threads=threads,
            progress=progress,
            drop_last=drop_last,
            shuffle=shuffle,
        )
        arguments.check_numbers(batch_size, seed, max_pixels)
        arguments.check_samplers(batch_size, shuffle, sampler, batch_sampler, drop_last)
        is_iterable = not choice.has_engine(dataset) and choice.is_iterable(dataset)
        if is_iterable:
            arguments.check_iterable(shuffle, sampler, batch_sampler, on_error)
        workers = arguments.workers(num_workers)
        factor = arguments.prefetch(prefetch_factor, workers)
        arguments.check_workers(workers, timeout, persistent_workers)
        self._warn_of_unused(dataset, multiprocessing_context, worker_init_fn)
        own = batch_sampler if sampler is None else sampler
        asks = own is None and generator is None and not is_iterable
        rank, world_size = arguments.place(rank, world_size, asks=asks, divides=own is None)

        self.dataset = dataset
        self.batch_size = batch_size if batch_sampler is None else None
        self.drop_last = drop_last
        self.num_workers = workers
        self.prefetch_factor = factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self.generator = generator
        self._options = Options(
            batch_size=self.batch_size,
            batched=batch_size is not None or batch_sampler is not None,
            drop_last=drop_last,
            shuffle=bool(shuffle),
            transform=transform,
            seed=seed,
            num_workers=workers,
            workers_given=num_workers is not None,
            ahead=max(1, workers * (factor or 0)),
            collate_fn=collate_fn,
            pin=pinner(pin_memory, pin_memory_device),
            in_order=in_order,
            persistent_workers=persistent_workers,
            worker_init_fn=worker_init_fn,
            on_error=on_error,
            rank=rank,
            world_size=world_size,
            cache_limit=arguments.cache_bytes(cache_limit),
            cache_policy=cache_policy,
            cache=cache,
            cache_dir=cache_dir,
            threads=threads,
            storage_options=dict(storage_options or {}),
            max_pixels=max_pixels,
        )
        self._begin_life(sampler, batch_sampler, num_workers, progress)

    @staticmethod
    def _warn_of_unused(dataset: Any, context: Any, init: Callable[[int], None] | None) -> None:
        """What torch's loader uses, and this one can't."""
        if context is not None:
            what = "multiprocessing_context is ignored: workers are threads of this process"
            warnings.warn(what, UserWarning, stacklevel=3)
        if init is not None and choice.has_engine(dataset):
            what = f"worker_init_fn is not called: a {type(dataset).__name__} is read by threads"
            why = "of the core, which run no Python; set up in the transform what a Lambda needs"
            warnings.warn(f"{what} {why}", UserWarning, stacklevel=3)

    def _begin_life(
        self,
        sampler: Iterable[Any] | None,
        batch_sampler: Iterable[Any] | None,
        num_workers: int | None,
        progress: Shown,
    ) -> None:
        """What follows from the arguments, and what changes while it is used."""
        options = self._options
        self._order = choice.order_for(
            self.dataset, sampler, batch_sampler, options, self.generator, num_workers
        )
        self.sampler, self.batch_sampler = choice.samplers_for(
            self.dataset, sampler, batch_sampler, options, self.generator
        )
        self.collate_fn = choice.collate_for(options)
        self._engine = choice.engine_for(self.dataset, options, self.collate_fn)
        self._progress = progress
        self._epoch = 0
        self._ledger = Ledger()
        self._meter = Meter(self._ledger)
        self._track: Track | None = None
        self._loaded: State | None = None
        self._iterations: weakref.WeakSet[Iteration] = weakref.WeakSet()
        self._closed = False
        self._initialized = True

    def __setattr__(self, name: str, value: Any) -> None:
        if self._initialized and name in _FIXED:
            what = f"{name} attribute should not be set after DataLoader is initialized"
            raise InvalidInput(f"{what}; make another one")
        super().__setattr__(name, value)

    def __len__(self) -> int:
        """Batches of a whole epoch, for this rank."""
        if self._order.kind == "iterable":
            return order.count(len(self.dataset), self.batch_size, self.drop_last)
        index_sampler: Any = self.batch_sampler if self.batch_sampler is not None else self.sampler
        return len(index_sampler)

    def __iter__(self) -> Iterator[Any]:
        """Begins the next epoch, or what is left of the one that was loaded."""
        if self._closed:
            raise Closed("this DataLoader is closed")
        start = self._loaded or self._between(self._epoch)
        self._tell_epoch(own=False)
        self._track = Track(start, self._order.begin(start.epoch, self._loaded))
        # Not before: a state that could not be gone on with is not forgotten.
        self._loaded = None
        self._epoch = start.epoch + 1
        iteration = Iteration(
            self._engine,
            self._track,
            self._meter,
            ahead=self._options.ahead,
            timeout=self.timeout or None,
            in_caller=self.num_workers == 0 and not choice.has_engine(self.dataset),
            total=self._length(),
            progress=self._progress,
        )
        self._iterations.add(iteration)
        return iteration

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch; a sampler with ``set_epoch`` is told. After
        ``load_state_dict``, the epoch of the state keeps its place, any other begins anew."""
        self._epoch = epoch
        self._tell_epoch(own=True)
        if self._loaded is not None and self._loaded.epoch != epoch:
            anew = replace(self._loaded, epoch=epoch, base=0, batches=0, beyond=[])
            self._loaded = replace(anew, sampler=None)

    def state_dict(self) -> dict[str, Any]:
        """Where the latest iteration stands, as plain data: what was yielded, not what was read
        ahead. Any rank's will do for all ranks that have yielded as many batches."""
        return replace(self._state(), bad=self._ledger.plain()).plain()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The next iteration goes on where ``state_dict`` was taken. After the last batch of an
        epoch, that is an iteration without batches; after its end, the next epoch."""
        state = State.of(state_dict)
        state.check_fits(self._between(0))
        if state.generator is not None:
            rng.check(state.generator)
        elif state.order == "generator":
            raise InvalidInput("this is no state of a DataLoader: its generator is missing")
        state = state.divided(self._options.world_size, self.batch_size)
        self._ledger.load(state.bad or {})
        self._loaded = state
        self._epoch = state.epoch
        self._track = None

    def stats(self) -> Stats:
        """What it did so far, over all epochs."""
        return self._meter.stats(self._engine.stats())

    def close(self) -> None:
        """Ends its iterations and stops its threads at once. Needed by nobody who drops it."""
        self._closed = True
        for iteration in list(self._iterations):
            iteration.close()
        self._engine.close()

    def _state(self) -> State:
        if self._loaded is not None:
            return self._loaded
        if self._track is not None and not self._track.ended:
            return self._track.state()
        facts = self._order.facts()
        between = self._between(self._epoch)
        return replace(between, generator=facts.generator, sampler=facts.sampler)

    def _between(self, epoch: int) -> State:
        """The beginning of an epoch."""
        options, kind = self._options, self._order.kind
        length = None if kind == "iterable" else choice.length_of(self.dataset)
        return State(
            order=kind,
            length=length,
            seed=options.seed,
            shuffle=options.shuffle,
            world_size=options.world_size,
            batch_size=options.batch_size,
            epoch=epoch,
        )

    def _tell_epoch(self, *, own: bool) -> None:
        """Tells samplers the epoch: the user's only if he calls ``set_epoch``, as with torch."""
        if own or self._order.kind in ("seeded", "sequential"):
            for holder in (self.sampler, self.batch_sampler):
                tell = getattr(holder, "set_epoch", None)
                if callable(tell):
                    tell(self._epoch)

    def _length(self) -> int | None:
        try:
            return len(self)
        except (TypeError, NotImplementedError):
            return None
