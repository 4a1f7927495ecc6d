"""Random number generators of torch, their states as text, and torch's draw for an epoch."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tensorferry._errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np
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


def globals_now() -> dict[str, Any]:
    """The states of all global generators that a dataset may draw from, as plain data."""
    import numpy as np
    import torch

    version, (*words, at), gauss = random.getstate()
    _, numpys, *more = np.random.get_state(legacy=True)
    return {
        "torch": text_of(torch.default_generator),
        "random": [version, np.array(words, np.uint32).tobytes().hex(), at, gauss],
        "numpy": [np.asarray(numpys).tobytes().hex(), *map(float, more)],
    }


def restore_globals(saved: Mapping[str, Any]) -> None:
    """Brings them back."""
    import numpy as np
    import torch

    try:
        version, words, at, gauss = saved["random"]
        numpys, *more = saved["numpy"]
        random.setstate((version, (*_words(words).tolist(), at), gauss))
        np.random.set_state(("MT19937", _words(numpys), int(more[0]), int(more[1]), more[2]))
        restore(torch.default_generator, saved["torch"])
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise InvalidInput(f"the generators' states can't be restored: {error}") from error


def _words(text: str) -> np.ndarray[Any, np.dtype[np.uint32]]:
    import numpy as np

    return np.frombuffer(bytes.fromhex(text), np.uint32)


@contextmanager
def globals_kept() -> Iterator[None]:
    """The global generators as they are now again afterwards."""
    present = globals_now()
    try:
        yield
    finally:
        restore_globals(present)


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
