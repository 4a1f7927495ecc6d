"""DTensors, as FSDP2 makes parameters: every process steps the shard that it has.

Adam goes element by element. So shards that are stepped by themselves are those of the stepped
whole, bit for bit, and nothing has to be sent. State is kept as torch keeps it, in DTensors
distributed as their parameter.
"""

from __future__ import annotations

from typing import Any

import torch

from tensorferry._errors import InvalidInput, Unsupported
from tensorferry._kinds import is_dtensor


def here(tensor: torch.Tensor) -> torch.Tensor:
    """What of a tensor is in this process: of a DTensor its shard, of any other all of it."""
    if not is_dtensor(tensor):
        return tensor
    dtensor: Any = tensor
    with torch.no_grad():
        shard = dtensor.to_local()
    # Some collectives give a tensor that waits for them when it is used.
    return shard.wait() if hasattr(shard, "wait") else shard  # type: ignore[no-any-return]


def whole(shard: torch.Tensor, owner: torch.Tensor) -> torch.Tensor:
    """A tensor distributed as ``owner`` is, of which this is what is here."""
    if not is_dtensor(owner):
        return shard
    # Not ``from_local``: that would move a shard in host memory to the device of the mesh.
    made: Any = torch.empty_like(owner, dtype=shard.dtype, requires_grad=False)
    made._local_tensor = shard
    return made  # type: ignore[no-any-return]


def check_placement(owner: torch.Tensor, name: str) -> None:
    """Says which DTensors are no parameters whose shards could be stepped."""
    if is_dtensor(owner) and any(each.is_partial() for each in owner.placements):  # type: ignore[attr-defined]
        raise Unsupported(
            f"{name} is a DTensor of partial sums, which have no step of their own; "
            "redistribute() it as Shard or Replicate"
        )


def part_of(tensor: torch.Tensor, owner: torch.Tensor, what: str) -> torch.Tensor:
    """What of a gradient, or of a piece of state, goes with what of its parameter is here.

    What is distributed in another way over the same processes is redistributed, as torch's own
    operations would; every process must ask for it then.
    """
    if is_dtensor(tensor) != is_dtensor(owner):
        raise InvalidInput(
            f"{what} is a {type(tensor).__name__}, the parameter a {type(owner).__name__}; "
            "torch.distributed.checkpoint.state_dict converts state, "
            "torch.distributed.tensor.distribute_tensor single tensors"
        )
    if not is_dtensor(owner):
        return tensor
    given: Any = tensor
    like: Any = owner
    if given.shape != like.shape:
        shapes = f"{tuple(given.shape)}, the parameter of {tuple(like.shape)}"
        raise InvalidInput(f"{what} is of shape {shapes}")
    if given.device_mesh != like.device_mesh:
        raise InvalidInput(f"{what} is distributed over another mesh than its parameter")
    if given.placements != like.placements:
        with torch.no_grad():
            given = given.redistribute(placements=like.placements)
    return here(given)
