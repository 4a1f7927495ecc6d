"""Ranks that talk through torch.distributed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from tensorferry._checkpoint.ranks.group import Group
from tensorferry._checkpoint.ranks.index import replaceable
from tensorferry._checkpoint.ranks.ticket import Ticket
from tensorferry._errors import ALL, Error, Io

T = TypeVar("T")


def can_talk(group: Group) -> bool:
    """Whether the ranks are those of torch.distributed."""
    return (
        group.world_size > 1
        and dist.is_available()
        and dist.is_initialized()
        and dist.get_world_size() == group.world_size
    )


def leads() -> bool:
    """Whether this process makes the index."""
    return dist.get_rank() == 0


def begin(path: str, prepare: Callable[[], T]) -> tuple[Ticket, T]:
    """What the leader has drawn, and what this rank has prepared."""

    def draw() -> tuple[str, int] | None:
        if not leads():
            return None
        index = replaceable(path)
        generation = (index.generation if index else 0) + 1
        return f"g{generation}r{secrets.token_hex(8)}", generation

    own, prepared = step(lambda: (draw(), prepare()))
    drawn: list[Any] = [own]
    dist.broadcast_object_list(drawn, src=0)
    token, generation = drawn[0]
    return Ticket(token, generation, time.time()), prepared


def step(act: Callable[[], T], undo: Callable[[], None] = lambda: None) -> T:
    """Acts on all ranks, and waits for all; raises this rank's failure, or that of another one.

    ``undo`` is called when all know that one has failed, and so none goes on. When talking itself
    fails, some may have gone on: then nothing is undone.
    """
    failure: Exception | None = None
    outcome: tuple[str, str] | None = None
    try:
        result = act()
    except Exception as error:
        failure = error
        outcome = getattr(error, "kind", type(error).__name__), str(error)
    outcomes: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(outcomes, outcome)
    failed = next((rank for rank, other in enumerate(outcomes) if other is not None), None)
    if failed is None:
        return result
    undo()
    if failure is not None:
        raise failure
    kind, text = outcomes[failed]
    raise _BY_KIND.get(kind, Io)(f"rank {failed} has failed to save its part: {text}")


_BY_KIND: dict[str, type[Error]] = {cls.kind: cls for cls in ALL}
