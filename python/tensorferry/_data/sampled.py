"""Orders of the user's own samplers.

A sampler is asked exactly as torch's loader asks it, only earlier. To resume, one that has
``state_dict`` and ``load_state_dict`` is brought back to its place by them; they are taken to know
where in the epoch it is. Any other is run again from the epoch's beginning, with its generator and
torch's global one as they were then, and must repeat itself: a checksum of what it yielded tells.
"""

from __future__ import annotations

import copy
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from tensorferry._data import rng
from tensorferry._data.epoch_order import Facts
from tensorferry._data.state import State
from tensorferry._errors import InvalidInput

if TYPE_CHECKING:
    import torch


class SampledOrder:
    """What a sampler yields; ``kind`` says whether it yields samples or batches."""

    def __init__(
        self,
        kind: str,
        sampler: Iterable[Any],
        batch_size: int | None,
        drop_last: bool,
        generator: torch.Generator | None,
        lookahead: int,
        draws_once: bool,
    ) -> None:
        self.kind = kind
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.generator = generator
        self.lookahead = lookahead
        self.draws_once = draws_once
        self.base_seed: int | None = None
        named = ("state_dict", "load_state_dict")
        self.is_stateful = all(callable(getattr(sampler, name, None)) for name in named)

    def begin(self, epoch: int, seed: int | None, state: State | None) -> SampledEpoch:
        """Begins an epoch, or goes on from a state."""
        saved = None if state is None else state.sampler
        if state is None or saved is None:
            return SampledEpoch(self, self._origin(), None)
        if self.is_stateful != ("own" in saved):
            has = "has" if self.is_stateful else "has no"
            what = f"the state is of another sampler; this one {has} state_dict and load_state_dict"
            raise InvalidInput(what)
        if self.is_stateful:
            self.sampler.load_state_dict(copy.deepcopy(saved["own"]))  # type: ignore[attr-defined]
        else:
            self._restore(saved)
        if self.is_stateful or state.base_seed is None:
            return SampledEpoch(self, self._origin(), state)
        with rng.as_it_was(saved["global"]):
            epoch_order = SampledEpoch(self, self._origin(saved["draws"]), state)
            epoch_order.replay(state, saved["checksum"])
        return epoch_order

    def facts(self) -> Facts:
        """For a state between epochs."""
        return Facts(sampler=self.saved(self._origin(), self.position(0)))

    def position(self, checksum: int) -> Any:
        """Where the sampler is now."""
        if self.is_stateful:
            return copy.deepcopy(self.sampler.state_dict())  # type: ignore[attr-defined]
        return checksum

    def saved(self, origin: dict[str, Any], position: Any) -> dict[str, Any]:
        """What brings the sampler to a position."""
        return {"own": position} if self.is_stateful else {**origin, "checksum": position}

    def _origin(self, draws: bool | None = None) -> dict[str, Any]:
        """All generators that the sampler may draw from, as they are at an epoch's beginning, and
        whether torch's loader draws from one of them too."""
        import torch

        own = [rng.text_of(each) for each in self._generators()]
        if draws is None:
            draws = self.base_seed is None or not self.draws_once
        return {
            "generators": own,
            "global": rng.text_of(torch.default_generator),
            "draws": draws,
        }

    def _restore(self, saved: dict[str, Any]) -> None:
        generators = self._generators()
        known = {"generators", "global", "draws", "checksum"}
        if set(saved) != known or len(generators) != len(saved["generators"]):
            raise InvalidInput("the state is of a sampler with other generators")
        for generator, text in zip(generators, saved["generators"], strict=True):
            rng.restore(generator, text)

    def _generators(self) -> list[torch.Generator]:
        import torch

        found: list[torch.Generator] = []
        inner = getattr(self.sampler, "sampler", None)
        for holder in (self, self.sampler, inner):
            generator = getattr(holder, "generator", None)
            if isinstance(generator, torch.Generator) and all(generator is not g for g in found):
                found.append(generator)
        return found


class SampledEpoch:
    """One epoch of it."""

    def __init__(self, of: SampledOrder, origin: dict[str, Any], state: State | None) -> None:
        self.eager = of.lookahead > 0
        self._of = of
        self._origin = origin
        self._first = 0 if state is None else state.batches
        self._beyond = () if state is None else tuple(state.beyond)
        self._checksum = 0
        self._items = _lazily(of.sampler) if self._wraps else iter(of.sampler)
        known = None if state is None else state.base_seed
        if known is not None and (of.is_stateful or not origin["draws"]):
            of.base_seed = known
        elif of.base_seed is None or origin["draws"]:
            of.base_seed = rng.draw_base_seed(of.generator)
        self.base_seed = of.base_seed
        self._positions = {self._first: of.position(0)}
        # An incomplete batch takes the sampler beyond its end, into the next epoch.
        self._over_after: int | None = None
        if state is not None and state.sampler is not None and state.sampler.get("over"):
            self._items = iter(())
            self._over_after = self._first

    def replay(self, state: State, checksum: int) -> None:
        """Passes over what was consumed already."""
        consumed = state.base + state.batches * (self._of.batch_size or 1)
        for item in islice(self._items, consumed):
            self._add([item] if self._of.kind == "sampler" else item)
        if checksum != self._checksum:
            what = "the sampler did not repeat the order that it gave before the state was saved"
            how = "seed it alike, give it a torch.Generator, or state_dict and load_state_dict"
            raise InvalidInput(f"{what}; {how}")
        self._positions = {self._first: checksum}
        if self.eager:
            # As when the epoch began: the first draw is made before the user goes on.
            self._items = itertools.chain(list(islice(self._items, 1)), self._items)

    def batches(self) -> Iterator[tuple[int, Sequence[Any]]]:
        """The batches still to come."""
        for number, keys in enumerate(self._batched(), self._first):
            self._add(keys)
            if self._wraps and len(keys) < (self._of.batch_size or 1):
                self._over_after = number + 1
            self._positions[number + 1] = self._of.position(self._checksum)
            if number not in self._beyond:
                yield number, keys

    def pulled(self, requests: int) -> None:
        """The sampler draws for itself."""

    def passed(self, batches: int) -> None:
        """Positions before the present one are not needed any more."""
        for number in [number for number in self._positions if number < batches]:
            del self._positions[number]

    def foreseen(self) -> Sequence[torch.Tensor]:
        """Nothing is known before the sampler says it."""
        return ()

    def facts(self, passed: int) -> Facts:
        """To resume after a batch."""
        saved = self._of.saved(self._origin, self._positions[passed])
        if self._of.is_stateful and passed == self._over_after:
            saved["over"] = True
        return Facts(self.base_seed, sampler=saved)

    @property
    def _wraps(self) -> bool:
        """Whether batches are made here, of the sampler's samples."""
        return self._of.kind == "sampler" and self._of.batch_size is not None

    def _batched(self) -> Iterator[Sequence[Any]]:
        from torch.utils.data import BatchSampler

        size = self._of.batch_size
        if self._wraps and size is not None:
            return iter(BatchSampler(self._items, size, self._of.drop_last))
        return ([item] for item in self._items) if self._of.kind == "sampler" else self._items

    def _add(self, keys: Iterable[Any]) -> None:
        """By samples, so that the batch size makes no difference."""
        for key in keys:
            self._checksum = zlib.crc32(repr(key).encode(), self._checksum)


def _lazily(sampler: Iterable[Any]) -> Iterator[Any]:
    """As in torch's batches: a sampler is not asked before the first batch is."""
    yield from sampler
