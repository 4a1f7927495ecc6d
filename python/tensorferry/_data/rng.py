"""Random number generators of torch, their states as text, and torch's draw for an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tensorferry._errors import InvalidInput

if TYPE_CHECKING:
    import torch


def draw_base_seed(generator: torch.Generator | None) -> int:
    """What torch's loader draws for every epoch, from the user's generator or the global one.

    Drawn also where nothing needs it: so all other random numbers of a program stay the same when
    it changes loaders.
    """
    import torch

    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def text_of(generator: torch.Generator) -> str:
    """A generator's state, in hexadecimal."""
    return bytes(generator.get_state().numpy()).hex()


def restore(generator: torch.Generator, text: str) -> None:
    """Brings a generator back to a state."""
    import torch

    try:
        state = torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)
        generator.set_state(state)
    except (ValueError, RuntimeError, TypeError) as error:
        raise InvalidInput(f"the generator's state can't be restored: {error}") from error


def check(text: str) -> None:
    """Refuses what is no state of a generator."""
    import torch

    restore(torch.Generator(), text)


def copy_of(generator: torch.Generator) -> torch.Generator:
    """Another generator that will draw the same."""
    import torch

    copy = torch.Generator(device=generator.device)
    copy.set_state(generator.get_state())
    return copy


@contextmanager
def as_it_was(text: str) -> Iterator[None]:
    """The global generator in an earlier state, and in its own again afterwards."""
    import torch

    present = torch.default_generator.get_state()
    restore(torch.default_generator, text)
    try:
        yield
    finally:
        torch.default_generator.set_state(present)
