"""Parameters that a forward writes to.

torch counts the writes to a tensor, but not those that go through ``.data``. So the first forwards
are watched, operation by operation: what they write to is used in host memory from then on, because
a copy on the device would take the change with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tensorferry._shadow.host_memory import Slot


class Writes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Marks the slots that are written to as long as it is on."""

    supports_higher_order_operators = True

    def __init__(self, slots: Iterable[Slot]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._by_address = {slot.host.data_ptr(): slot for slot in slots}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Before every operation."""
        named = kwargs or {}
        schema = getattr(function, "_schema", None)
        if schema is not None and schema.is_mutable:
            for tensor in _written(schema, args, named):
                slot = self._by_address.get(tensor.untyped_storage().data_ptr())
                if slot is not None:
                    slot.is_written = True
        return function(*args, **named)


def _written(schema: Any, args: Iterable[Any], named: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    given = chain(
        zip(schema.arguments, args, strict=False),
        ((each, named.get(each.name)) for each in schema.arguments),
    )
    for argument, value in given:
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, torch.Tensor) and each.layout is torch.strided and each.is_cpu:
                yield each
