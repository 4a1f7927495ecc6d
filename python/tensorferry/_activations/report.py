"""What an offload did, in numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Outside:
    """Saved tensors of one kind that stay in memory and do not count."""

    tensors: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a step should come to under the plan that it follows."""

    forward_stall: float
    backward_stall: float
    seconds: float
    peak_bytes: int
    written_bytes: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step: forward passes, and the backward pass after them."""

    step: int
    mode: str
    """``profiled`` (no plan was there: what fitted stayed), ``planned``, or ``differed`` (from the
    plan)."""
    tensors: int
    saved_bytes: int
    offloaded_bytes: int
    stored_bytes: int
    """On disk: fewer than were offloaded where compression paid."""
    read_bytes: int
    forward_seconds: float
    backward_seconds: float
    forward_stall: float
    """Seconds of forward that waited for room."""
    backward_stall: float
    """Seconds of backward that waited for a tensor."""
    write_seconds: float
    read_seconds: float
    overlap: float
    """The share of the seconds of reads and writes in which compute went on."""
    peak_bytes: int
    """Of activations in memory, staging included."""
    predicted: Prediction | None
    """What was expected of it after the step before, if a plan is followed."""


@dataclass(frozen=True, slots=True)
class Report:
    """Numbers since the offload was made; prints as a small report."""

    steps: int
    budget: int
    staging_bytes: int
    used_bytes: int
    scratch_bytes: int
    written_bytes: int
    seconds: float
    drive_bytes: int
    drive_writes_per_day: float
    """How often a day the drives would be written whole at the pace so far."""
    unplanned: str | None
    """Why there is no plan, if there should be one."""
    unrecycled: str | None
    """Why freed memory is not used again, if it should be."""
    last: StepReport | None
    outside: dict[str, Outside]
    """Saved tensors of the last forward pass that stay in memory and do not count, by kind."""

    def __str__(self) -> str:
        lines = [
            f"{self.steps} steps; budget {_size(self.budget)} ({_size(self.staging_bytes)} of it "
            f"staging), in use {_size(self.used_bytes)}, on disk {_size(self.scratch_bytes)}",
            f"written {_size(self.written_bytes)} in {self.seconds:.0f} s: "
            f"{self.drive_writes_per_day:.2f} drive writes a day at this pace",
        ]
        if self.unplanned is not None:
            lines.append(f"no plan: {self.unplanned}")
        if self.unrecycled is not None:
            lines.append(f"freed memory is not used again: {self.unrecycled}")
        if self.last is not None:
            lines += _lines(self.last)
        for kind, outside in self.outside.items():
            lines.append(f"not counted: {kind}, {outside.tensors} of {_size(outside.bytes)}")
        return "\n".join(lines)


def _lines(step: StepReport) -> list[str]:
    lines = [
        f"step {step.step} ({step.mode}): {step.tensors} tensors of {_size(step.saved_bytes)}, "
        f"{_size(step.offloaded_bytes)} offloaded as {_size(step.stored_bytes)}; "
        f"peak {_size(step.peak_bytes)}",
        f"forward {step.forward_seconds:.3f} s (stalled {step.forward_stall:.3f} s), "
        f"backward {step.backward_seconds:.3f} s (stalled {step.backward_stall:.3f} s); "
        f"{step.overlap:.0%} of the I/O behind compute",
    ]
    if step.predicted is not None:
        expected = step.predicted
        lines.append(
            f"predicted: stalls of {expected.forward_stall:.3f} s and "
            f"{expected.backward_stall:.3f} s, {expected.seconds:.3f} s in all, "
            f"peak {_size(expected.peak_bytes)} without staging"
        )
    return lines


def parsed(text: str, outside: dict[str, Outside], unrecycled: str | None) -> Report:
    """The report that the core gave as JSON, and what it does not know."""
    fields: dict[str, Any] = json.loads(text)
    last = fields.pop("last")
    if last is not None:
        predicted = last.pop("predicted")
        expected = None if predicted is None else Prediction(**predicted)
        last = StepReport(**last, predicted=expected)
    return Report(**fields, unrecycled=unrecycled, last=last, outside=outside)


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    raise AssertionError
