"""What can be wrong with a scenario."""

from __future__ import annotations

from typing import ClassVar


class Failure(Exception):
    """Something that must never happen has happened."""

    kind: ClassVar[str]


class Wrong(Failure):
    """A result is not that of the plain reference."""

    kind = "wrong result"


class Hang(Failure):
    """A process has said nothing for longer than its patience."""

    kind = "hang"


class Crash(Failure):
    """A process was ended by a signal that nobody here has sent, or left with an exit code."""

    kind = "crash"


class Unclear(Failure):
    """An exception that the disturbance does not explain."""

    kind = "unclear error"


class Leftover(Failure):
    """Files, processes or shared memory are there when everybody has gone."""

    kind = "leftover"


class Growth(Failure):
    """A process holds more with every round."""

    kind = "growth"


class NotHere(Exception):
    """This machine can't make the disturbance; the scenario is passed over, and counted as such."""
