"""From the state of a runtime to a report."""

from __future__ import annotations

import json
from statistics import median
from typing import Any

from tensorferry._shadow.clock import Times
from tensorferry._shadow.layers import Layer
from tensorferry._shadow.profile import shared_by_elements
from tensorferry._shadow.report import LayerReport, Report
from tensorferry._shadow.runtime import Runtime


def summary(runtime: Runtime, device: str, planner: str) -> Report:
    """What is known now."""
    plan = runtime.placement.plan
    last = json.loads(runtime.engine.last()) if plan is not None else None
    finished = runtime.stages.measured if plan is not None else runtime.stages.profiled
    times = finished[-1] if finished else Times()
    seconds = [each.seconds for each in finished]
    peak = 0 if last is None else last["peak_bytes"] + runtime.stages.beyond_plan
    return Report(
        stage=runtime.stages.name,
        iterations=runtime.iterations,
        device=device,
        planner=planner,
        budget=json.loads(runtime.engine.facts())["budget"],
        peak_bytes=peak,
        update=runtime.updates.mode or "undecided",
        update_why=runtime.updates.why,
        seconds=times.seconds,
        median_seconds=median(seconds) if seconds else 0.0,
        predicted_seconds=None if plan is None else _predicted(runtime, plan),
        compute_seconds=times.compute,
        wait_seconds=times.wait,
        step_seconds=times.step_seconds,
        idle_share=max(1 - times.compute / times.seconds, 0.0) if times.seconds else 0.0,
        layers=_layers(runtime, plan, last, times),
    )


def _predicted(runtime: Runtime, plan: dict[str, Any]) -> float:
    """A plan knows updates beside backward; those in ``step()`` come after it."""
    predicted = float(plan["predicted"]["seconds"])
    if runtime.updates.on_arrival:
        return predicted
    finished = runtime.stages.measured or runtime.stages.profiled
    return predicted + median(each.step_seconds for each in finished)


def _layers(
    runtime: Runtime, plan: dict[str, Any] | None, last: dict[str, Any] | None, times: Times
) -> list[LayerReport]:
    if plan is None or last is None:
        return []
    layers = runtime.placement.layers
    spans = last["layers"] or [{}] * len(layers)
    steps = {} if runtime.updates.on_arrival else shared_by_elements(layers, times.step_seconds)
    return [
        _layer(layer, choice, span, steps.get(layer.index), times)
        for layer, choice, span in zip(layers, plan["choices"], spans, strict=True)
    ]


def _layer(
    layer: Layer, choice: dict[str, Any], span: dict[str, Any], step: float | None, times: Times
) -> LayerReport:
    index = layer.index
    return LayerReport(
        name=layer.name,
        parameter_bytes=layer.nbytes,
        mode=choice["mode"],
        gradient=choice["gradient"],
        why=choice["why"],
        forward_seconds=times.forward.get(index, 0.0),
        backward_seconds=times.backward.get(index, 0.0),
        forward_wait=times.forward_wait.get(index, 0.0),
        backward_wait=times.backward_wait.get(index, 0.0),
        update_seconds=span.get("update", 0.0) if step is None else step,
        copied_bytes=span.get("copied_bytes", 0),
        direct_bytes=span.get("direct_bytes", 0),
    )
