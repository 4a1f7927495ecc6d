"""From the files of all ranks to the index."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from tensorferry._checkpoint.opened import Opened
from tensorferry._checkpoint.ranks.group import matches
from tensorferry._checkpoint.ranks.index import Index, Private, Replicated, Sharded, Tensor
from tensorferry._checkpoint.ranks.split import chunk_sizes
from tensorferry._checkpoint.ranks.words import Words
from tensorferry._errors import InvalidInput
from tensorferry._structure import names
from tensorferry._structure.select import BLOBS


@dataclass(frozen=True, slots=True)
class Seen:
    """What a rank has of a tensor."""

    kind: str
    dtype: str
    shape: list[int]
    stored: bool
    checksum: str | None
    dim: int | None


def survey(
    token: str, generation: int, files: list[str], parts: Iterable[tuple[Opened, Words]]
) -> Index:
    """Makes the index, or says what does not fit together."""
    ranks: list[dict[str, Seen]] = []
    unmatched: dict[str, None] = {}
    for opened, words in parts:
        ranks.append(_seen(opened, words))
        unmatched |= dict.fromkeys(words.unmatched)
    all_names = dict.fromkeys(name for seen in ranks for name in seen)
    _refuse_unmatched(unmatched, all_names)
    tensors = {name: _tensor(name, [seen.get(name) for seen in ranks]) for name in all_names}
    return Index(token, generation, files, tensors)


def _refuse_unmatched(patterns: Iterable[str], all_names: Collection[str]) -> None:
    """One that is misspelt would leave a tensor to each rank, of which others get that of rank 0.
    A rank whose part lacks what a pattern means is fine, as long as another has it."""
    for pattern in patterns:
        if not matches(pattern, all_names):
            near = get_close_matches(pattern, all_names, SHOWN_MAX) or list(all_names)[:SHOWN_MAX]
            shown = ", ".join(map(repr, near)) or "none"
            what = f"the pattern {pattern!r} of sharded or replicated matches no tensor of any rank"
            raise InvalidInput(f"{what}; names are such as {shown}")


def _seen(opened: Opened, words: Words) -> dict[str, Seen]:
    """All tensors of a rank."""
    checksums: list[str | None] = [None] * len(opened.tensors)
    text = opened.metadata.get("crc32c")
    if text is not None and " " in text:
        # The first ones are the header's own.
        checksums = list(text.split(" ")[1:])
    replicated = set(words.replicated)
    blobs = set(names(opened.node(), tags=BLOBS))
    seen = {}
    for (name, dtype, shape, _), checksum in zip(opened.tensors, checksums, strict=True):
        dim = words.sharded.get(name)
        kind = "sharded" if dim is not None else "private"
        kind = "replicated" if name in replicated else kind
        kind = "bytes" if kind == "private" and name in blobs else kind
        seen[name] = Seen(kind, dtype, shape, True, checksum, dim)
    for name, (dtype, shape) in words.elsewhere.items():
        seen[name] = Seen("replicated", dtype, shape, False, None, None)
    return seen


def _tensor(name: str, ranks: list[Seen | None]) -> Tensor:
    there = [seen for seen in ranks if seen is not None]
    kinds = {seen.kind for seen in there}
    if kinds <= {"private", "bytes"}:
        return _private(ranks, there)
    if len(kinds) > 1:
        said = _each(ranks, lambda seen: seen.kind)
        raise InvalidInput(f"the ranks do not agree what {name!r} is: {said}")
    if len(there) < len(ranks) and _is_untied(there):
        return Private(_having(ranks), equal=False, own=True)
    if len(there) < len(ranks):
        missing = ", ".join(str(rank) for rank, seen in enumerate(ranks) if seen is None)
        what = f"{name!r} is {there[0].kind} and must be in the objects of all ranks"
        raise InvalidInput(f"{what}, but is not in that of rank {missing}")
    if kinds == {"replicated"}:
        return _replicated(name, there)
    return _sharded(name, there)


def _is_untied(there: list[Seen]) -> bool:
    """Whether it is the second name of a part without elements. Tied tensors are stored once, but
    empty ones have no memory by which to see that they are tied."""
    return all(seen.kind == "sharded" and 0 in seen.shape for seen in there)


def _private(ranks: list[Seen | None], there: list[Seen]) -> Private:
    first = there[0]
    empty = 0 in first.shape
    equal = len(there) == len(ranks) and all(
        (seen.dtype, seen.shape, seen.checksum) == (first.dtype, first.shape, first.checksum)
        for seen in there
    )
    # Without checksums, nobody knows.
    equal = equal and (first.checksum is not None or empty or len(ranks) == 1)
    return Private(_having(ranks), equal, own=all(seen.kind == "bytes" for seen in there))


def _having(ranks: list[Seen | None]) -> Sequence[int]:
    having = [rank for rank, seen in enumerate(ranks) if seen is not None]
    return having if len(having) < len(ranks) else range(len(ranks))


def _replicated(name: str, ranks: list[Seen]) -> Replicated:
    first = ranks[0]
    stored = [rank for rank, seen in enumerate(ranks) if seen.stored]
    if any((seen.dtype, seen.shape) != (first.dtype, first.shape) for seen in ranks):
        said = _each(ranks, lambda seen: f"{seen.dtype} {seen.shape}")
        raise InvalidInput(f"{name!r} is replicated, but not the same on all ranks: {said}")
    if not stored:
        what = f"no rank has stored {name!r}: the ranks have different replicated tensors"
        raise InvalidInput(f"{what}; take those that are not on all ranks out of replicated")
    return Replicated(first.dtype, first.shape, stored[0])


def _sharded(name: str, ranks: list[Seen]) -> Sharded:
    first = ranks[0]
    dim = first.dim
    if dim is None or any(seen.dim != dim for seen in ranks):
        said = _each(ranks, lambda seen: f"along {seen.dim}")
        raise InvalidInput(f"the ranks do not agree how {name!r} is sharded: {said}")

    def rest(seen: Seen) -> tuple[str, list[int], list[int]]:
        return seen.dtype, seen.shape[:dim], seen.shape[dim + 1 :]

    if any(rest(seen) != rest(first) for seen in ranks):
        said = _each(ranks, lambda seen: f"{seen.dtype} {seen.shape}")
        raise InvalidInput(f"{name!r} is sharded along {dim}, but its parts do not fit: {said}")
    sizes = [seen.shape[dim] for seen in ranks]
    even = chunk_sizes(sum(sizes), len(ranks))
    if sizes != even:
        what = f"{name!r} is not cut evenly along {dim}: the ranks have {sizes}"
        raise InvalidInput(f"{what}, torch.chunk would give {even}")
    return Sharded(first.dtype, [*first.shape[:dim], sum(sizes), *first.shape[dim + 1 :]], dim)


SHOWN_MAX = 8
"""Ranks that an error tells about."""


def _each(ranks: Sequence[Seen | None], say: Callable[[Seen], str]) -> str:
    there = [(rank, say(seen)) for rank, seen in enumerate(ranks) if seen is not None]
    shown = ", ".join(f"{said} on rank {rank}" for rank, said in there[:SHOWN_MAX])
    return shown + (", ..." if len(there) > SHOWN_MAX else "")
