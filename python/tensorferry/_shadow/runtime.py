"""An iteration of a shadowed model, from the first layer of forward to the last step.

Modules tell when they are called, nodes of the graph where backward is, parameters when they have
gradients, and the optimizer when it steps. All of it comes together here, in the thread that
trains.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

from tensorferry import _lib
from tensorferry._errors import Error, InvalidInput, Unsupported
from tensorferry._shadow.backward import Backward, current_task
from tensorferry._shadow.clock import Clock
from tensorferry._shadow.forward_stack import ForwardStack
from tensorferry._shadow.gradients import Gradients
from tensorferry._shadow.hook import Hook
from tensorferry._shadow.host_memory import HostMemory, Slot
from tensorferry._shadow.layers import Layer
from tensorferry._shadow.placement import Placement
from tensorferry._shadow.saved import Hooks, LiveBytes, ParameterView
from tensorferry._shadow.stages import Planning, ShadowOptions, Stages
from tensorferry._shadow.updates import Updates

DEPTH_MAX = 8
"""Of dataclasses, one within another."""

UNSEEN = (
    "the optimizer steps, but no backward of the wrapped model was seen, so nothing is planned and "
    "no budget holds: no tensor with a graph was found in what forward returns, or layers in it. "
    "Return tensors, or tuples, lists, dicts or dataclasses of them"
)


class Graph:
    """Lives as long as the graph of a forward does: its nodes hold it."""


class Runtime:
    """Everything about one wrapped model that changes."""

    def __init__(
        self,
        engine: _lib.Shadow,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        options: ShadowOptions,
        planning: Planning | None,
    ) -> None:
        self.engine = engine
        self._module = module
        named = [(name, p) for name, p in module.named_parameters() if p.numel() > 0]
        self._host_memory = HostMemory(engine, named)
        self.clock = Clock()
        self.updates = Updates(
            engine, optimizer, self._host_memory.slots, options.update, (self._steps, self._stepped)
        )
        self._stack = ForwardStack(engine, self.clock, self)
        self.backward = Backward(
            engine, self.clock, self.updates.backward_begins, self._backward_ended
        )
        self._gradients = Gradients(engine, self.backward, self.updates)
        self._hooks = self._hook_modules()
        self.stages = Stages(engine, module, self._host_memory, self.updates, options, planning)
        self.iterations = 0
        self._is_over = False
        """Closed, or left by the model that was around it: what comes is nobody's here."""
        self._inside = False
        self._active = False
        self._thread = threading.get_ident()
        """That trains."""
        self._graph: weakref.ref[Graph] | None = None
        self._latest: torch.autograd.graph.Node | None = None
        """Of the graph that a forward has made so far."""
        self._is_unseen = False
        """A forward has returned nothing by which its graph is known."""
        self._seen = (0, torch.empty(0, dtype=torch.int32))
        """Counters of changes and samples of all parameters when the iteration began."""

    # -- forward --

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Around a forward of the model."""
        if self._inside or current_task() >= 0:
            # Recomputed within a backward, or called by itself.
            yield
            return
        self.updates.refuse_unstepped("a forward")
        self._begin()
        self._inside = True
        self._thread = threading.get_ident()
        hooks = Hooks(self)
        try:
            with self.stages.watch():
                yield
        except BaseException:
            # What has failed is raised, not what follows from it.
            with suppress(Error):
                self._stack.unwind(self.placement)
            with suppress(Error):
                self._end()
            raise
        finally:
            self._inside = False
            hooks.remove()

    def forward_ended(self, output: Any) -> None:
        """Its output is known: the iteration goes on if that has a graph."""
        if self._inside or current_task() >= 0:
            return
        latest, self._latest = self._latest, None
        nodes = _nodes(output) or [each for each in [latest] if each is not None]
        if nodes:
            graph = Graph()
            self._graph = weakref.ref(graph)
            for node in nodes:
                node.register_prehook(partial(self._mark, None, graph))
        elif self._graph is None or self._graph() is None:
            self._is_unseen |= torch.is_grad_enabled()
            self._end()

    def check_room(self) -> None:
        """A forward has ended; an error if there is no room for what autograd keeps of it."""
        if self._inside or current_task() >= 0:
            return
        try:
            self.stages.check_room()
        except Error:
            with suppress(Error):
                self._end()
            raise

    def _begin(self) -> None:
        if self.backward.runs:
            self._abandon_backward()
        self._latest = None
        was_away = self._host_memory.take_back()
        alive = self._graph is not None and self._graph() is not None
        seen = self._host_memory.versions(), self._host_memory.sampled()
        is_same = seen[0] == self._seen[0] and torch.equal(seen[1], self._seen[1])
        if self._active and (not alive or was_away or not is_same):
            self._end()
        if self._active:
            return
        self.stages.advance()
        self._gradients.watch(self._host_memory.slots)
        self._gradients.waits_for_each = in_ddp = _is_in_ddp()
        if in_ddp:
            self._refuse_ddp()
        for slot in self._host_memory.slots:
            slot.is_rewritten = slot.is_written
        self._seen = seen
        self._active = True
        self.clock.begin()
        if self.placement.plan is not None:
            self._gradients.placement = self.placement
            self._begin_copies()

    def _begin_copies(self) -> None:
        try:
            self.engine.begin()
        except Error:
            # Something has failed, and was reported; parameters are unharmed in host memory.
            self.stages.install_again()
            self.engine.begin()

    def _refuse_ddp(self) -> None:
        if self.updates.wants_arrival:
            raise Unsupported(
                "gradients of DistributedDataParallel are averaged before a step, which "
                'update="arrival" can\'t wait for; pass update="step"'
            )
        self.updates.object("the model is in DistributedDataParallel")

    def _end(self) -> None:
        """The iteration is over, whether it came to a backward or not."""
        self._active = False
        self._graph = None
        self._gradients.placement = None
        try:
            if self.placement.plan is not None:
                self.engine.end()
        finally:
            self.clock.stop()

    # -- layers --

    def _hook_modules(self) -> list[tuple[Hook, torch.utils.hooks.RemovableHandle]]:
        hooks = []
        for module in self._module.modules():
            if any(True for _ in module.parameters()):
                before, after = Hook(self._before_module), Hook(self._after_module)
                hooks += [
                    (
                        before,
                        module.register_forward_pre_hook(before, prepend=True, with_kwargs=True),
                    ),
                    (after, module.register_forward_hook(after, always_call=True)),
                ]
        return hooks

    def _before_module(
        self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        recomputed = current_task() >= 0
        if not (self._inside or recomputed):
            self.updates.refuse_unstepped("a forward of a part of the model")
            return
        self.stages.note_call(module)
        layer = self.placement.of_module.get(module)
        if layer is None:
            return
        nbytes = layer.called((*arguments, *named.values()))
        if not recomputed:
            self.clock.start(layer.index, backward=False)
        self.clock.read(layer.index, recomputed, nbytes)
        self._stack.enter(layer, self.placement, nbytes)

    def _after_module(self, module: nn.Module, _: Any, output: Any) -> None:
        layer = self._stack.leave(module, self.placement)
        if layer is None and self.placement.layers:
            return
        nodes = _nodes(output)
        if nodes and self._inside and current_task() < 0:
            self._latest = nodes[-1]
        if layer is not None:
            for node in nodes:
                node.register_prehook(partial(self._mark, layer, None))
            if current_task() >= 0:
                # A checkpoint computes it once more, and keeps what forward did not.
                self.stages.check_room()

    @property
    def placement(self) -> Placement:
        """The layers, and their places."""
        return self.stages.placement

    @property
    def live(self) -> LiveBytes:
        """Counts what is saved."""
        return self.stages.live

    def find(self, tensor: torch.Tensor) -> tuple[Layer, Slot] | None:
        """Whose bytes a tensor shows."""
        return self.placement.find(tensor, self._stack.layers())

    # -- backward --

    def _mark(self, layer: Layer | None, _: Graph | None, __: Any) -> None:
        if self._is_over and not self.backward.runs:
            return
        index = None if layer is None else self._index(layer)
        if self.backward.mark(index) and index is not None and self.placement.plan is not None:
            # From here on it writes gradients, if it does so in place.
            self.backward.enter(index, 0)

    def _index(self, layer: Layer) -> int | None:
        """None for a layer of before the last discovery."""
        return layer.index if self.placement.of_module.get(layer.module) is layer else None

    def locate(self, view: ParameterView) -> torch.Tensor:
        """Where a saved parameter is now, for a kernel of backward."""
        is_ours = not self._is_over or self.backward.runs
        if not (is_ours and self.backward.touch()) or self._index(view.layer) is None:
            return view.slot.host
        if self._gradients.was_seen(view.slot):
            self.updates.object("a parameter is read after its gradient was made", view.slot)
        index = view.layer.index
        self.clock.read(index, True, view.read_bytes)
        on_device = self.placement.plan is not None and self.backward.enter(index, view.read_bytes)
        if not on_device or view.slot.is_rewritten:
            return view.slot.host
        return self.placement.on_device(view.layer, view.slot)

    def _backward_ended(self) -> None:
        self.clock.pause()
        self._gradients.finish()
        was_active = self._active
        self._end()
        if was_active:
            self._is_unseen = False
            self.iterations += 1
            self.stages.iterated(self.clock.times)
        self.updates.backward_ended()
        if self._is_over:
            self._release()

    def _abandon_backward(self) -> None:
        # It has failed already, perhaps for this very reason.
        with suppress(Error):
            self.backward.reset()
        with suppress(Error):
            self._end()
        self._gradients.abandon()
        self.updates.backward_failed()

    def forget_updates(self) -> None:
        """Parameters are loaded: what was a step ahead is no more."""
        if self.backward.runs and current_task() < 0:
            self._abandon_backward()
        # What it would raise has been raised.
        with suppress(Error):
            self.engine.finish_updates()
        self.updates.forget()

    def _steps(self) -> None:
        if self.backward.runs and current_task() < 0:
            self._abandon_backward()
            raise InvalidInput(
                "the last backward has failed, so there are no gradients for a step(); "
                "start with a forward again"
            )

    def _stepped(self, seconds: float) -> None:
        if self._active:
            self._end()
        self.clock.stepped(seconds)
        if self._is_unseen and self.iterations == 0 and not self._is_over:
            self._is_unseen = False
            warnings.warn(UNSEEN, UserWarning, stacklevel=2)
        if self._is_over:
            self._end_hooks()

    # -- the end --

    def close(self) -> None:
        """Takes every hook away; parameters and gradients are plain tensors again."""
        if self.backward.runs and current_task() < 0:
            self._abandon_backward()
        self._is_over = True
        self._release()
        for _, handle in self._hooks:
            handle.remove()
        self.updates.unhook()
        self._host_memory.give_back()

    def leave(self) -> None:
        """Nobody has the wrapper any more. Parameters stay in their host memory, which is theirs
        alone now; all else goes: at once, or at the end of a backward that is under way.

        This may be called at any moment, from any thread, by the collector. So nothing is moved,
        and no hook is taken out of a list that somebody may be going through."""
        self._is_over = True
        if not self.backward.runs:
            self._release()
        elif current_task() < 0 and threading.get_ident() == self._thread:
            # It has failed.
            self._abandon_backward()
            self._release()

    def _release(self) -> None:
        """Frees threads and the device, and lets everybody go who would hold this."""
        if self._active:
            with suppress(Error):
                self._end()
        # What it would raise has been raised.
        with suppress(Error):
            self.updates.close()
        self.engine.close()
        if not self.updates.is_ahead:
            self._end_hooks()
        self._gradients.unwatch()
        self.stages.release()
        self._host_memory.release()

    def _end_hooks(self) -> None:
        for hook, _ in self._hooks:
            hook.end()

    def __del__(self) -> None:
        # The core's threads end before the memory goes that they work on.
        if hasattr(self, "engine"):
            self.engine.close()


def _nodes(output: Any) -> list[torch.autograd.graph.Node]:
    """The nodes of the graph that made what a module returned."""
    if isinstance(output, torch.Tensor):
        return [] if output.grad_fn is None else [output.grad_fn]
    found = (each.grad_fn for each in _tensors(output, DEPTH_MAX))
    return list(dict.fromkeys(each for each in found if each is not None))


def _tensors(output: Any, depth: int) -> Iterator[torch.Tensor]:
    for leaf in tree_leaves(output):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif depth and is_dataclass(leaf) and not isinstance(leaf, type):
            for each in fields(leaf):
                yield from _tensors(getattr(leaf, each.name, None), depth - 1)


def _is_in_ddp() -> bool:
    ddp: Any = DistributedDataParallel
    return ddp._get_active_ddp_module() is not None
