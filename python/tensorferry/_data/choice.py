"""Which order and which engine a loader gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Any

from tensorferry._data.caller import CallerEngine
from tensorferry._data.course import Order
from tensorferry._data.engine import Engine, Options
from tensorferry._data.fetch import Fetcher
from tensorferry._data.known import KnownOrder
from tensorferry._data.sampled import SampledOrder
from tensorferry._data.stream import Source, StreamEngine
from tensorferry._data.threads import ThreadEngine
from tensorferry._data.unindexed import Unindexed
from tensorferry._errors import InvalidInput

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
    num_workers: int | None,
) -> Order:
    """The order that the arguments ask for."""
    # What torch's loader would ask its sampler for at once. By default it has no workers.
    lookahead = 0 if num_workers is None else options.ahead if num_workers else 0
    once = options.persistent_workers and bool(lookahead)
    size, drop_last = options.batch_size, options.drop_last
    if batch_sampler is not None:
        return SampledOrder("batch_sampler", batch_sampler, None, False, generator, lookahead, once)
    if sampler is not None:
        return SampledOrder("sampler", sampler, size, drop_last, generator, lookahead, once)
    if not has_engine(dataset) and is_iterable(dataset):
        return Unindexed(size, generator)
    return KnownOrder(
        dataset=dataset,
        batch_size=size,
        drop_last=drop_last,
        shuffle=options.shuffle,
        seed=options.seed,
        generator=generator,
        rank=options.rank,
        world_size=options.world_size,
        lookahead=lookahead,
        draws_once=once,
    )


def samplers_for(
    dataset: Any,
    sampler: Iterable[Any] | None,
    batch_sampler: Iterable[Any] | None,
    options: Options,
    generator: torch.Generator | None,
) -> tuple[Iterable[Any], Iterable[Any] | None]:
    """Torch's objects that say the same, for those who look at ``loader.sampler``."""
    from torch.utils.data import (
        BatchSampler,
        DistributedSampler,
        RandomSampler,
        SequentialSampler,
    )

    if sampler is None and not has_engine(dataset) and is_iterable(dataset):
        sampler = repeat(None)
    if sampler is None and options.world_size == 1:
        if not options.shuffle or batch_sampler is not None:
            sampler = SequentialSampler(dataset)
        elif generator is not None:
            sampler = RandomSampler(dataset, generator=generator)
    if sampler is None:
        sampler = DistributedSampler(
            dataset, options.world_size, options.rank, options.shuffle, options.seed
        )
    if batch_sampler is None and options.batch_size is not None:
        batch_sampler = BatchSampler(sampler, options.batch_size, options.drop_last)
    return sampler, batch_sampler


def collate_for(options: Options) -> Callable[[Any], Any]:
    """What makes a batch of samples, or torch's values of one."""
    from torch.utils.data import default_collate, default_convert

    if options.collate_fn is not None:
        return options.collate_fn
    return default_collate if options.batched else default_convert


def engine_for(
    dataset: Any,
    options: Options,
    collate: Callable[[Any], Any],
) -> Engine:
    """The engine for a dataset."""
    if has_engine(dataset):
        engine: Engine = dataset._engine(options)
        return engine
    if options.transform is not None:
        what = (
            "transform= is for datasets of tensorferry.data, which prepare samples without Python"
        )
        raise InvalidInput(f"{what}; give this {type(dataset).__name__} a transform of its own")
    if is_iterable(dataset):
        source = Source(
            dataset,
            options.batched,
            options.drop_last,
            collate,
            options.pin,
            options.on_error,
        )
        return StreamEngine(source, options)
    if not hasattr(dataset, "__getitem__"):
        what = (
            f"a dataset has __getitem__ or is an IterableDataset; {type(dataset).__name__} is not"
        )
        raise InvalidInput(what)
    fetcher = Fetcher(
        dataset,
        length_of(dataset),
        options.batched,
        collate,
        options.pin,
        options.on_error,
        options.seed,
    )
    return CallerEngine(fetcher) if options.num_workers == 0 else ThreadEngine(fetcher, options)
