"""Activations on SSD: batches that do not fit into memory train all the same.

    offload = ferry.ActivationOffload("/scratch", budget="1GiB")
    for x, y in loader:
        with offload:
            loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()

What autograd saves for backward goes to files in ``/scratch`` while forward computes, and comes
back while backward does; at most ``budget`` bytes of it are in memory at any time. Gradients are
the same, bit for bit. What fits stays in memory; the first step is measured, and from then on a
plan says what is kept. Nothing of the model changes.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, Self

from tensorferry import _lib
from tensorferry._activations.report import Outside, Report, StepReport, parsed

PathLike = str | os.PathLike[str]
Compress = Literal["none", "lossless", "half"]
Planner = Literal["timeline", "paper"]

__all__ = ["ActivationOffload", "Outside", "Plan", "Report", "StepReport"]


class Plan:
    """What is done with each tensor of a step, and why."""

    def __init__(self, text: str, explained: str) -> None:
        self._text = text
        self._explained = explained

    def explain(self) -> str:
        """A table: each tensor, where it goes and why; what that should come to."""
        return self._explained

    def to_json(self) -> str:
        """The plan as JSON."""
        return self._text

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data."""
        plan: dict[str, Any] = json.loads(self._text)
        return plan

    def __repr__(self) -> str:
        plan = self.to_dict()
        kept = sum(choice["place"] == "keep" for choice in plan["choices"])
        return f"Plan({plan['planner']}: {kept} of {len(plan['choices'])} tensors are kept)"


class ActivationOffload:
    """Keeps what autograd saves within a budget of memory; the rest is on disk.

    Use it around forward, as often as there are steps. Backward may be inside or after it. Several
    forwards before one backward, ``torch.utils.checkpoint``, autocast, ``retain_graph`` and threads
    work as they do without it.

    Args:
        path: A directory on a fast disk, or several on several disks. Files in it have no name and
            vanish with the process.
        budget: Bytes of activations in memory, staging included: ``"1GiB"``. What is below
            ``min_bytes``, and what others hold anyway (parameters, a batch that you keep), is not
            counted. What one operation saves has to fit; where it does not, the end of the first
            forward is an error that states the least budget.
        compress: ``"lossless"`` leaves zeros out where that pays. ``"half"`` stores float32 as
            float16 where it fits: gradients are then **not** the same bit for bit. ``"none"``.
        planner: ``"timeline"``, or ``"paper"`` for the two phases of FlashNeuron.
        min_bytes: Tensors smaller than this stay where they are.
        recycle_memory: Give large tensors the memory of those that were freed, as long as there is
            an offload; beside the budget, up to half of it (at least 32 MiB, or what the largest
            tensor takes) is kept for that. Without it, the C library keeps most of what offloading
            frees, and the process hardly gets smaller. An allocator that the process was started
            with (``LD_PRELOAD``) is left alone, and ``report().unrecycled`` says so.
    """

    def __init__(
        self,
        path: PathLike | Sequence[PathLike],
        budget: int | str = "1GiB",
        *,
        compress: Compress = "lossless",
        planner: Planner = "timeline",
        min_bytes: int | str = "256KiB",
        recycle_memory: bool = True,
    ) -> None:
        from tensorferry._activations.capture import Capture

        paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        self._store = _lib.Activations(
            [os.fspath(each) for each in paths], budget, compress, planner, recycle_memory
        )
        self._capture = Capture(self._store, _lib.parse_size(min_bytes))
        self._open = threading.local()

    def __enter__(self) -> Self:
        from torch.autograd.graph import saved_tensors_hooks

        hooks = saved_tensors_hooks(self._capture.pack, self._capture.unpack)
        hooks.__enter__()
        try:
            self._store.begin()
        except BaseException:
            hooks.__exit__(None, None, None)
            raise
        if not self._stack:
            self._capture.outside.begin()
        self._stack.append(hooks)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.pop().__exit__(kind, error, traceback)
        try:
            self._store.end(kind is None)
        except Exception:
            # The step has failed already, perhaps for this very reason.
            if kind is None:
                raise

    @property
    def _stack(self) -> list[Any]:
        """The hooks that this thread has entered."""
        if not hasattr(self._open, "stack"):
            self._open.stack = []
        stack: list[Any] = self._open.stack
        return stack

    @property
    def plan(self) -> Plan | None:
        """The plan for the next step; None until one was measured."""
        text, explained = self._store.plan(), self._store.explain()
        return None if text is None or explained is None else Plan(text, explained)

    @property
    def profile(self) -> str | None:
        """What was measured last, as JSON: for ``tensorferry simulate activations``."""
        return self._store.profile()

    def report(self) -> Report:
        """Numbers of the last step and of all of them; prints well."""
        outside = self._capture.outside.kinds()
        return parsed(self._store.report(), outside, self._store.unrecycled)

    def __repr__(self) -> str:
        report = self.report()
        return f"ActivationOffload(budget={report.budget}, steps={report.steps})"
