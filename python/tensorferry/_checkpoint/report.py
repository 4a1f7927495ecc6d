"""What a save did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SaveReport:
    """What a save did; prints well."""

    path: str
    bytes: int
    """Bytes in the file."""
    seconds: float
    """From the call to the file in its place."""
    tool: str
    """The tool used."""
    staged_seconds: float
    """From the call until all tensors were copied out of the caller's memory."""
    waited_seconds: float
    """Of those, waiting for the disk."""
    sync_seconds: float
    """Making it durable and putting it in its place."""
    complete: bool = True
    """Of several ranks: whether the checkpoint is whole. False says that this call did not see the
    files of all others; the last rank's call does."""

    @classmethod
    def of(cls, path: str, raw: dict[str, Any]) -> SaveReport:
        """From the core's numbers."""
        return cls(path=path, **raw)

    @property
    def bandwidth(self) -> float:
        """Bytes a second."""
        return self.bytes / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        return (
            f"saved {self.bytes / 1e6:.1f} MB to {self.path} in {self.seconds:.3f} s "
            f"({self.bandwidth / 1e9:.2f} GB/s, {self.tool})"
            + ("" if self.complete else ", and other ranks are still to come")
        )
