"""What a user calls a device, and what the core calls it."""

from __future__ import annotations

import torch

from tensorferry._errors import InvalidInput, Unsupported

OWN = ("emulated", "host")
"""Kinds that the core knows."""
KNOWN = (
    'emulated devices, as in device="emulated:capacity=2GiB,bandwidth=4GB/s,latency=20us" or '
    '"emulated:v100-pcie3", where training is on the CPU and waits for the link that is described; '
    'and device="cpu", where nothing waits and nothing is gained'
)


def device_name(device: str | torch.device | None) -> str:
    """The core's name of a device; an error that says what there is if it has none."""
    if device is None:
        raise InvalidInput(f"a ShadowModel has no default device; there are {KNOWN}")
    if not isinstance(device, str | torch.device):
        kind = type(device).__name__
        raise InvalidInput(f"the device is {device!r}, of type {kind}; there are {KNOWN}")
    name = str(device)
    if name.partition(":")[0] in OWN:
        return name
    try:
        kind = torch.device(name).type
    except RuntimeError as error:
        raise InvalidInput(f"{name!r} is no device; there are {KNOWN}") from error
    if kind != "cpu":
        raise Unsupported(f"ShadowModel does not run on {name!r} yet; there are {KNOWN}")
    return "host"
