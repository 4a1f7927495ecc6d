"""Which order and which engine a loader gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tensorferry._data.caller import CallerEngine
from tensorferry._data.engine import Engine, Options
from tensorferry._data.epoch_order import Order
from tensorferry._data.fetch import Fetcher
from tensorferry._data.known import KnownOrder
from tensorferry._data.processes import ProcessEngine
from tensorferry._data.sampled import SampledOrder
from tensorferry._data.stream import Source
from tensorferry._data.stream_thread import StreamEngine
from tensorferry._data.threads import ThreadEngine
from tensorferry._data.unindexed import Unindexed

if TYPE_CHECKING:
    import torch


def has_engine(dataset: object) -> bool:
    """Whether a dataset is one of ours."""
    return callable(getattr(type(dataset), "_engine", None))


def is_iterable(dataset: object) -> bool:
    """Whether a dataset has no indices."""
    from torch.utils.data import IterableDataset

    return isinstance(dataset, IterableDataset)


def length_of(dataset: Any) -> int | None:
    """Samples in a dataset; with a sampler of the user's, it need not say."""
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


def order_for(
    dataset: Any,
    sampler: Iterable[Any] | None,
    batch_sampler: Iterable[Any] | None,
    options: Options,
    generator: torch.Generator | None,
    is_seeded: bool,
) -> Order:
    """The order that the arguments ask for."""
    # What torch's loader would ask its sampler for at once.
    works = options.num_workers > 0 and (options.workers_given or not has_engine(dataset))
    lookahead = options.ahead if works else 0
    once = options.persistent_workers and bool(lookahead)
    size, drop_last = options.batch_size, options.drop_last
    if batch_sampler is not None:
        return SampledOrder("batch_sampler", batch_sampler, None, False, generator, lookahead, once)
    if sampler is not None:
        return SampledOrder("sampler", sampler, size, drop_last, generator, lookahead, once)
    if not has_engine(dataset) and is_iterable(dataset):
        return Unindexed(size, generator, once)
    return KnownOrder(
        dataset=dataset,
        batch_size=size,
        drop_last=drop_last,
        shuffle=options.shuffle,
        is_seeded=is_seeded,
        generator=generator,
        rank=options.rank,
        world_size=options.world_size,
        lookahead=lookahead,
        draws_once=once,
    )


def engine_for(dataset: Any, options: Options, collate: Callable[[Any], Any]) -> Engine:
    """The engine for a dataset."""
    if has_engine(dataset):
        engine: Engine = dataset._engine(options)
        return engine
    in_threads = options.workers == "threads" and options.num_workers > 0
    # Torch's workers leave pinning to a thread of the parent.
    pin = options.pin if in_threads or options.num_workers == 0 else None
    if is_iterable(dataset):
        source = Source(dataset, options.batched, options.drop_last, collate, pin, options.on_error)
        if in_threads:
            return StreamEngine(source, options)
        return CallerEngine(source) if options.num_workers == 0 else ProcessEngine(source, options)
    fetcher = Fetcher(
        dataset,
        options.batched,
        collate,
        pin,
        options.on_error,
        options.seed,
    )
    if in_threads:
        return ThreadEngine(fetcher, options)
    return CallerEngine(fetcher) if options.num_workers == 0 else ProcessEngine(fetcher, options)
