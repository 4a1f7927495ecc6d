"""Who holds how much host memory, and the limit that all of it stays within."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

from tensorferry import _lib

__all__ = ["Holding", "Limits", "Memory", "limit", "memory"]

Priority = Literal["kept", "spare", "fast", "needed"]


class _Unset:
    """No argument was given: None lifts a limit."""


UNSET: Final = _Unset()


@dataclass(frozen=True, slots=True)
class Holding:
    """One account: what a part of tensorferry holds."""

    name: str
    priority: Priority
    """Who gives back for whom: ``kept`` for the next user first, then ``spare`` blocks, then what
    makes it ``fast``; what is ``needed`` stays."""
    bytes: int
    reserved_bytes: int
    """Counted beside what is held: it may be held at any time."""
    peak_bytes: int
    """The most that it ever held."""
    reclaimable_bytes: int
    """What it would give back for others."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Host memory of this process that tensorferry holds; prints as a table."""

    bytes: int
    """The sum of all accounts."""
    reserved_bytes: int
    limit: int | None
    """``bytes`` and ``reserved_bytes`` together stay within it."""
    usable_bytes: int | None
    """What the machine has, or the container of this process."""
    available_bytes: int | None
    """What of it can be taken now."""
    accounts: list[Holding]
    """Those that hold most first."""

    def __str__(self) -> str:
        limit = "no limit" if self.limit is None else f"limit {_size(self.limit)}"
        head = f"{_size(self.bytes)} held, {_size(self.reserved_bytes)} reserved; {limit}"
        if self.usable_bytes is not None and self.available_bytes is not None:
            head += f"; {_size(self.available_bytes)} of {_size(self.usable_bytes)} available"
        titles = ("account", "priority", "held", "reserved", "peak", "reclaimable")
        rows: list[tuple[str, ...]] = [titles]
        rows += [_row(account) for account in self.accounts]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return "\n".join([head, *(_line(row, widths) for row in rows)])


@dataclass(frozen=True, slots=True)
class Limits:
    """What this process stays within; None is no limit."""

    memory: int | None


def memory() -> Memory:
    """Who holds how much host memory now."""
    told: dict[str, Any] = json.loads(_lib.memory_text())
    accounts = [Holding(**account) for account in told.pop("accounts")]
    return Memory(**told, accounts=accounts)


def limit(*, memory: str | int | _Unset | None = UNSET) -> Limits:
    """Sets limits of this process, ``ferry.limit(memory="8GiB")``, and gives those that hold.

    All that ``ferry.memory()`` tells stays within it: first what is kept for later goes, then
    caches shrink, then the work goes on with fewer buffers. It is an error if what is needed
    already is more. ``memory=None`` lifts it. It is of this process alone, and one that is forked
    has none.
    """
    if not isinstance(memory, _Unset):
        _lib.limit_memory(memory)
    return Limits(memory=_lib.memory_limit())


def _row(account: Holding) -> tuple[str, ...]:
    sizes = (
        account.bytes,
        account.reserved_bytes,
        account.peak_bytes,
        account.reclaimable_bytes,
    )
    return (account.name, account.priority, *map(_size, sizes))


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    words = [word.ljust(width) for word, width in zip(row[:2], widths[:2], strict=True)]
    numbers = [word.rjust(width) for word, width in zip(row[2:], widths[2:], strict=True)]
    return "  ".join(words + numbers)


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    raise AssertionError
