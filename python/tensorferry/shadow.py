"""Models whose parameters and optimizer state do not fit on the device.

    optimizer = ferry.optim.AdamW(model.parameters(), lr=1e-3)
    model = ferry.ShadowModel(model, optimizer, device="emulated:v100-pcie3", memory_budget="2GiB")
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(model.report())

Host memory holds parameters, gradients and optimizer state. The first iterations are measured; then
a plan says for each layer whether its parameters are copied to the device ahead of use, are used in
host memory over the link, or first one and then the other, and where its gradient goes. Losses and
parameters are the same as without it, bit for bit.

The device is emulated: its capacity and the time that its link takes. Copies, pointers and numbers
are real. There is no CUDA yet, and no default: nobody is made to wait for an emulated link who has
not asked for one.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Self

import torch
from torch import nn

from tensorferry import _lib
from tensorferry._errors import Closed, Error, InvalidInput, Unsupported
from tensorferry._shadow.device import device_name
from tensorferry._shadow.refusal import refuse_change, refuse_model, refuse_optimizer
from tensorferry._shadow.report import LayerReport, Report
from tensorferry._shadow.runtime import Runtime
from tensorferry._shadow.stages import Planning, ShadowOptions
from tensorferry._shadow.summary import summary
from tensorferry._shadow.updates import Update

Planner = Literal["exact", "paper", "copy"]
PREFIX = "module."

__all__ = ["LayerReport", "Report", "ShadowModel"]

_wrapped: weakref.WeakSet[nn.Module] = weakref.WeakSet()


class ShadowModel(nn.Module):
    """A model with its parameters in host memory, used on a device that is too small for them.

    Attributes of the model are there; ``state_dict`` has the model's own keys. Make the optimizer
    first: parameters stay the same objects.

    Args:
        module: The model, on the CPU.
        optimizer: Any optimizer of its parameters; ``ferry.optim.Adam`` and ``AdamW`` with their
            state in memory can update layers during backward.
        device: There is no default. ``"emulated:v100-pcie3"``, or one of your own:
            ``"emulated:capacity=2GiB,bandwidth=4GB/s,latency=20us"``: training waits for its link.
            ``"cpu"`` is this machine: nothing waits, and nothing is gained. CUDA is refused yet.
        memory_budget: Bytes on the device, all of it if not given: ``"2GiB"``.
        gradient_reserve: The share of all gradients that may stay on the device until they are
            copied out, from 0.0 to 1.0; or bytes, as ``"512MiB"``. Others are written straight to
            host memory.
        planner: ``"exact"``, ``"paper"`` for MemFerry's algorithm, ``"copy"`` for ZeRO-Offload's
            schedule.
        update: ``"step"`` leaves all updates to ``optimizer.step()``, and so does ``"auto"``, which
            watches the first iterations and reports whether they speak against ``"arrival"``. That
            updates a layer as soon as its gradient has arrived, and can't be undone: a backward
            that is not followed by its ``step()`` is an error then.
        profile_steps: Iterations that are measured before the plan is made.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        device: str | torch.device | None = None,
        memory_budget: int | str | None = None,
        *,
        gradient_reserve: float | str = 1.0,
        planner: Planner = "exact",
        update: Update = "auto",
        profile_steps: int = 3,
        _planning: Planning | None = None,
    ) -> None:
        super().__init__()
        _refuse_wrapped(module)
        refuse_model(module)
        refuse_optimizer(optimizer, list(module.parameters()))
        options = _options(planner, gradient_reserve, update, profile_steps)
        budget = None if memory_budget is None else _lib.parse_size(memory_budget)
        self.module = module
        self._device = name = device_name(device)
        self._runtime: Runtime | None = Runtime(
            _lib.Shadow(name, budget), module, optimizer, options, _planning
        )
        self._planner = planner
        self.training = module.training
        _wrapped.update(module.modules())
        self.register_load_state_dict_pre_hook(_add_prefix)  # type: ignore[no-untyped-call]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's."""
        runtime = self._running()
        with runtime.forward():
            output = self.module(*args, **kwargs)
        try:
            runtime.check_room()
        except Error:
            # Who keeps the error, keeps this frame: what was refused is to be gone all the same.
            del output
            raise
        runtime.forward_ended(output)
        return output

    def report(self) -> Report:
        """Numbers of the last iteration beside what was planned; prints well."""
        return summary(self._running(), self._device, self._planner)

    def profile(self) -> str | None:
        """What was measured, as JSON for ``tensorferry plan parameters``; None until a plan."""
        return self._running().stages.profile

    def __del__(self) -> None:
        runtime = self.__dict__.get("_runtime")
        if runtime is None or sys.is_finalizing():
            return
        runtime.leave()
        _unwrap(self.module)

    def close(self) -> None:
        """Gives the model back: its parameters are plain tensors again, and nothing is hooked."""
        if self._runtime is not None:
            self._runtime.updates.refuse_unstepped("close()")
            self._give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._give_back()

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The model's, with its own keys."""
        if self._runtime is not None:
            self._runtime.updates.refuse_unstepped("state_dict()")
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Loads what the model, wrapped or not, has saved."""
        if assign:
            raise Unsupported(
                "assign=True would take parameters out of their host memory; load without it"
            )
        if self._runtime is not None:
            self._runtime.forget_updates()
        return self.module.load_state_dict(state_dict, strict)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """The model's, with its own names."""
        return self.module.named_parameters(prefix, recurse, remove_duplicate)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """The model's, with its own names."""
        return self.module.named_buffers(prefix, recurse, remove_duplicate)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        # to(), cpu(), cuda(), half() and all others come here.
        if self._runtime is None:
            return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, no-any-return]
        refuse_change(self.module, fn)
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise Unsupported(
            "a ShadowModel can't be copied or pickled; copy its .module, or use state_dict()"
        )

    def _give_back(self) -> None:
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.close()
            _unwrap(self.module)

    def _running(self) -> Runtime:
        if self._runtime is None:
            raise Closed("the ShadowModel was closed; its model is .module")
        return self._runtime


def _options(
    planner: str, gradient_reserve: float | str, update: Update, profile_steps: int
) -> ShadowOptions:
    if planner not in ("exact", "paper", "copy"):
        raise InvalidInput(f'{planner!r} is no planner; choose "exact", "paper" or "copy"')
    if update not in ("auto", "arrival", "step"):
        raise InvalidInput(f'update is {update!r}; choose "auto", "arrival" or "step"')
    if profile_steps < 1:
        raise InvalidInput(f"profile_steps is {profile_steps}; measure at least one iteration")
    if isinstance(gradient_reserve, str):
        return ShadowOptions(planner, _lib.parse_size(gradient_reserve), update, profile_steps)
    if not 0 <= gradient_reserve <= 1:
        raise InvalidInput(
            f"gradient_reserve is {gradient_reserve}; give a share from 0.0 to 1.0, or bytes as "
            '"512MiB"'
        )
    return ShadowOptions(planner, float(gradient_reserve), update, profile_steps)


def _refuse_wrapped(module: nn.Module) -> None:
    if isinstance(module, ShadowModel) or any(each in _wrapped for each in module.modules()):
        raise InvalidInput(
            "the model, or a part of it, is in a ShadowModel already; close() that one first"
        )


def _unwrap(module: nn.Module) -> None:
    for each in module.modules():
        _wrapped.discard(each)


def _add_prefix(shadow: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """When a module around this one loads: our child is called ``module``, its keys are not."""
    assert isinstance(shadow, ShadowModel)
    if shadow._runtime is not None:
        shadow._runtime.forget_updates()
    for key in [key for key in state_dict if key.startswith(prefix)]:
        state_dict[prefix + PREFIX + key[len(prefix) :]] = state_dict.pop(key)
