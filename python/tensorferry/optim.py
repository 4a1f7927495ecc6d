"""``Adam`` and ``AdamW`` as torch has them, stepped by a fused, threaded kernel.

Drop-in for parameters in host memory::

    optimizer = ferry.optim.AdamW(model.parameters(), lr=1e-3)
    optimizer = ferry.optim.AdamW(model.parameters(), lr=1e-3, state="ssd:/scratch")

They are torch's own classes with another ``step``: parameter groups, schedulers, hooks, gradient
clipping, ``GradScaler`` and ``state_dict`` are torch's, and a ``state_dict`` of one loads into the
other. Results agree to the last few bits, and are the same on every machine and for any number of
threads.

**bfloat16 and float16** parameters have float32 masters and moments, so that small updates are not
lost. Masters follow the parameters: whoever sets weights (loads, clips, averages them) is never
overruled. torch's own optimizers keep such state in the parameter's dtype and ignore masters.

**On SSD** (``state="ssd:DIR"``) moments and masters are in a file of ``DIR`` and pass through a few
MiB of memory in each step. Everything read is verified. A step that fails in the middle (a full
disk shows before it, a broken one does not) leaves parameters and state that do not belong
together: every later step says so, until a checkpoint is loaded. ``state_dict()`` reads all of the
state into memory. The file stays when the process ends, and the next optimizer in ``DIR`` starts
it anew, or goes on with it: ``resume=True`` continues the state of the last whole step, and checks
that the model has the parameters of that step; a process that ended within a step can't be resumed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch
from torch.autograd.graph import increment_version
from torch.nn.parameter import is_lazy

from tensorferry._errors import InvalidInput, Unsupported
from tensorferry._optim.keeper import Closed, InMemory, Keeper, OnDisk, Report, keeper_of, plain
from tensorferry._optim.scaling import UnscalesItself
from tensorferry._optim.step import Moving, name_of, refuse_unsupported, settings_of
from tensorferry._optim.tensors import check_parameter, gradient_of, is_usual, refuse_shape

if TYPE_CHECKING:
    from torch.optim.optimizer import ParamsT

__all__ = ["Adam", "AdamW", "Report"]


class _Kept:
    """Keeps torch from casting a piece of loaded state to the dtype of its parameter."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value


class _Fused(torch.optim.Optimizer):
    """The step, and where its state is."""

    _keeper: Keeper = InMemory()
    _decoupled: bool
    # torch's fused step unscales gradients itself, and a ``GradScaler`` then leaves them to it.
    _step_supports_amp_scaling = UnscalesItself()

    def _keep(self, state: str, resume: bool) -> None:
        keeper = keeper_of(state, resume)
        if isinstance(keeper, OnDisk) and resume:
            keeper.resume(self._names(), self.state)
        self._keeper = keeper

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes a step with every parameter that has a gradient; the closure's loss, if given."""
        self._keeper.check()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            groups = [settings_of(group, self._decoupled) for group in self.param_groups]
            moving = self._moving()
            if moving:
                self._keeper.step(groups, moving, self.state)
                changed = [each.owner for each in moving]
                shards = [each.parameter for each in moving if each.parameter is not each.owner]
                increment_version(changed + shards)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """As torch's, whole, also when the state is on disk."""
        held = self.state
        self.state = defaultdict(dict, self._keeper.whole(held))
        try:
            return super().state_dict()
        finally:
            self.state = held

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a state dict of this class or of torch's."""
        self._keeper.check()
        hook = self.register_load_state_dict_pre_hook(_judged)
        try:
            super().load_state_dict(state_dict)
        finally:
            hook.remove()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's."""
        self._keeper.check()
        super().add_param_group(param_group)
        try:
            refuse_unsupported(self.param_groups[-1])
            self._check(len(self.param_groups) - 1)
        except (Unsupported, InvalidInput):
            self.param_groups.pop()
            raise

    def report(self) -> Report:
        """What keeping the state has cost so far."""
        return self._keeper.report()

    def close(self) -> None:
        """Lets go of the state: of its memory, or of its file, which stays.

        Whatever needs the state is an error from then on. A ``with`` block closes at its end, and
        an optimizer that nobody holds any more lets go by itself.
        """
        last = self._keeper.report()
        self._keeper.close()
        self._keeper = Closed(last)
        self.state.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check(self, number: int) -> None:
        """Says which parameters of a group could never take a step. Those without a shape yet, or
        without a gradient as it seems, are looked at when they are to take one."""
        group = self.param_groups[number]
        for place, parameter in enumerate(group["params"]):
            if parameter.requires_grad and not is_lazy(parameter):
                check_parameter(parameter, name_of(number, place, group.get("param_names")))

    def _moving(self) -> list[Moving]:
        found = []
        for number, group in enumerate(self.param_groups):
            names = group.get("param_names")
            for place, owner in enumerate(group["params"]):
                gradient = owner.grad
                if gradient is None:
                    continue
                if gradient.shape != owner.shape:
                    refuse_shape(owner, gradient, name_of(number, place, names))
                parameter = owner
                if not (is_usual(owner) and is_usual(gradient)):
                    name = name_of(number, place, names)
                    parameter = check_parameter(owner, name)
                    gradient = gradient_of(owner, parameter, name)
                found.append(Moving(number, place, names, owner, parameter, gradient))
        return found

    def _names(self) -> dict[torch.Tensor, str]:
        return _names(self.param_groups)

    def __getstate__(self) -> dict[str, Any]:
        self._keeper.check()
        if isinstance(self._keeper, OnDisk):
            raise Unsupported(
                "an optimizer with its state on disk can't be copied or pickled; use state_dict()"
            )
        return super().__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "state" in state:
            names = _names(state["param_groups"])
            # All of it before any of it is taken over.
            loaded = {
                owner: plain(_unwrapped(of_one), owner, names[owner]) if owner in names else of_one
                for owner, of_one in state["state"].items()
            }
            state = {**state, "state": defaultdict(dict, loaded)}
        super().__setstate__(state)
        self._keeper.install(self.state, self._names())


def _names(groups: list[dict[str, Any]]) -> dict[torch.Tensor, str]:
    """What errors call the parameters."""
    found = {}
    for number, group in enumerate(groups):
        names = group.get("param_names")
        for place, parameter in enumerate(group["params"]):
            found[parameter] = name_of(number, place, names)
    return found


def _unwrapped(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value.value if isinstance(value, _Kept) else value for key, value in state.items()}


def _judged(_: torch.optim.Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """The last to see a state dict before it is taken over."""
    for group in state_dict["param_groups"]:
        refuse_unsupported(group)
    states = {
        number: {
            key: _Kept(value) if isinstance(value, torch.Tensor) else value
            for key, value in state.items()
        }
        if isinstance(state, dict)
        else state
        for number, state in state_dict["state"].items()
    }
    return {**state_dict, "state": states}


class Adam(_Fused, torch.optim.Adam):
    """``torch.optim.Adam`` with a fused step.

    Args:
        params: Parameters, named parameters or groups of them, as for torch.
        lr: The learning rate: a number, or a tensor with one element.
        betas: How slowly the means of the gradient and of its square forget.
        eps: Added to the denominator.
        weight_decay: Added to the gradient, times the parameter.
        maximize: Climb instead of descend.
        state: ``"memory"`` or ``"ssd:DIRECTORY"``.
        resume: Go on with what an earlier process has left in the directory.
        amsgrad: Not supported.
        foreach: Says how torch steps; here there is one way, with the same result.
        capturable: Not supported.
        differentiable: Not supported.
        fused: As ``foreach``.
        decoupled_weight_decay: Weights shrink as with ``AdamW``.
    """

    _decoupled = False

    def __init__(
        self,
        params: ParamsT,
        lr: float | torch.Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        state: str = "memory",
        resume: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        # Older torch has no such argument.
        more = {"decoupled_weight_decay": True} if decoupled_weight_decay else {}
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            **more,
        )
        self._keep(state, resume)


class AdamW(_Fused, torch.optim.AdamW):
    """``torch.optim.AdamW`` with a fused step.

    Args:
        params: Parameters, named parameters or groups of them, as for torch.
        lr: The learning rate: a number, or a tensor with one element.
        betas: How slowly the means of the gradient and of its square forget.
        eps: Added to the denominator.
        weight_decay: The share of a parameter that is taken away, times the learning rate.
        maximize: Climb instead of descend.
        state: ``"memory"`` or ``"ssd:DIRECTORY"``.
        resume: Go on with what an earlier process has left in the directory.
        amsgrad: Not supported.
        foreach: Says how torch steps; here there is one way, with the same result.
        capturable: Not supported.
        differentiable: Not supported.
        fused: As ``foreach``.
    """

    _decoupled = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | torch.Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        state: str = "memory",
        resume: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
        )
        self._keep(state, resume)
