"""What a shadow model did, in numbers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class LayerReport:
    """One layer in the last iteration."""

    name: str
    parameter_bytes: int
    mode: str
    """``gfgb`` (copied in), ``dha`` (in host memory), ``dfgb`` (copied in for backward)."""
    gradient: str
    """``device``, ``host`` or ``none``: where backward puts it."""
    why: str
    forward_seconds: float
    backward_seconds: float
    """Computing, without waits."""
    forward_wait: float
    backward_wait: float
    """For the link."""
    update_seconds: float
    copied_bytes: int
    direct_bytes: int


@dataclass(frozen=True, slots=True)
class Report:
    """The last iteration, and what was planned; prints as a table."""

    stage: str
    """``discovering``, ``profiling`` or ``planned``."""
    iterations: int
    """With a backward, since the model was wrapped."""
    device: str
    planner: str
    budget: int
    peak_bytes: int
    """The most that was on the device since the last plan was made, with what autograd kept."""
    update: str
    """``arrival``, ``step``, or ``undecided``."""
    update_why: str
    seconds: float
    """From the start of forward to the end of backward, and in ``step()``; what the loop does
    between them does not count."""
    median_seconds: float
    """Of the iterations since the plan was made."""
    predicted_seconds: float | None
    compute_seconds: float
    wait_seconds: float
    """In which layers waited for the link."""
    step_seconds: float
    """In ``optimizer.step()``."""
    idle_share: float
    """Of the seconds, in which no layer computed."""
    layers: list[LayerReport] = field(default_factory=list)

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        lines = [
            f"{self.stage}, iteration {self.iterations}; {self.device}, planner {self.planner}; "
            f"peak {size(self.peak_bytes)} of a budget of {size(self.budget)}",
            f"update={self.update}: {self.update_why}",
            f"{self.seconds:.4f} s: {self.compute_seconds:.4f} s of compute, "
            f"{self.wait_seconds:.4f} s of waiting for the link, {self.step_seconds:.4f} s in "
            f"step(); idle {self.idle_share:.0%}",
        ]
        if self.predicted_seconds is not None:
            lines.append(
                f"predicted {self.predicted_seconds:.4f} s, measured {self.median_seconds:.4f} s "
                "(median since the plan)"
            )
        if self.layers:
            lines += table(self.layers)
        return "\n".join(lines)


def table(layers: list[LayerReport]) -> list[str]:
    """One line a layer."""
    width = max(5, *(len(layer.name) for layer in layers))
    head = f"{'layer':<{width}}  {'bytes':>9}  mode  gradient  {'wait s':>8}  {'compute s':>9}  "
    lines = [head + f"{'update s':>8}  why"]
    for each in layers:
        wait = each.forward_wait + each.backward_wait
        compute = each.forward_seconds + each.backward_seconds
        lines.append(
            f"{each.name:<{width}}  {size(each.parameter_bytes):>9}  {each.mode:<4}  "
            f"{each.gradient:<8}  {wait:8.4f}  {compute:9.4f}  {each.update_seconds:8.4f}  "
            f"{each.why}"
        )
    return lines


def size(number: float) -> str:
    """For people."""
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"
