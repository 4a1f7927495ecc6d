"""What torch's ``GradScaler`` asks an optimizer before it has it take a step.

The scaler reads ``_step_supports_amp_scaling`` from the optimizer: whether the optimizer unscales
gradients itself, as torch's fused ones do. Ours do not, so the answer is no. That it was asked is
the one sign that a scaler takes the steps: unscaling does not show in the gradients' counters of
changes, nor in their values while the scale is 1.
"""

from __future__ import annotations

from typing import Any

_ASKED = "_asked_by_scaler"


class UnscalesItself:
    """The attribute that is asked for: always ``False``, whatever torch's own classes set."""

    def __get__(self, optimizer: Any, kind: type | None = None) -> bool:
        if optimizer is not None:
            setattr(optimizer, _ASKED, True)
        return False

    def __set__(self, optimizer: Any, value: bool) -> None:
        pass


def was_asked(optimizer: object) -> bool:
    """Whether a scaler has asked this optimizer since the last call of this."""
    return bool(vars(optimizer).pop(_ASKED, False))
