"""One save by all ranks, as one of them knows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ticket:
    """What is the same on all ranks of a save, and when this one began."""

    token: str
    generation: int
    begun: float
