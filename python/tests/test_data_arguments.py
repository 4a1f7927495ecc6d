"""A loader's arguments: torch's in torch's order, then ours; each goes where it is needed."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import pytest
import torch
from data_cases import Numbers

import tensorferry as ferry
from tensorferry._data.arguments import ONLY_OURS, TORCHS, Arguments
from tensorferry._data.engine import Options

SIGNATURE = inspect.signature(ferry.DataLoader).parameters
TORCH = inspect.signature(torch.utils.data.DataLoader).parameters
NOT_KEPT_BY_TORCH = {"shuffle"}


def test_the_signature_is_torchs_and_then_ours_by_keyword() -> None:
    assert list(SIGNATURE)[: len(TORCH)] == list(TORCH)
    for name, ours in list(SIGNATURE.items())[: len(TORCH)]:
        assert ours.kind == TORCH[name].kind
        if name != "num_workers":  # None: what suits the dataset.
            assert ours.default == TORCH[name].default
    for ours in list(SIGNATURE.values())[len(TORCH) :]:
        assert ours.kind is ours.KEYWORD_ONLY
        assert ours.default is not ours.empty


def test_every_argument_is_an_attribute_so_that_others_can_make_the_loader_anew() -> None:
    asked: dict[str, Any] = {
        "batch_size": 3,
        "num_workers": 1,
        "timeout": 5.0,
        "in_order": False,
        "prefetch_factor": 4,
        "drop_last": True,
        "seed": 7,
        "rank": 1,
        "world_size": 2,
        "on_error": "skip",
        "progress": False,
    }
    loader = ferry.DataLoader(Numbers(12), **asked)
    for name in set(SIGNATURE) - NOT_KEPT_BY_TORCH:
        assert hasattr(loader, name), name
    assert {name: getattr(loader, name) for name in asked} == asked
    assert set(SIGNATURE) - TORCHS <= set(ferry.DataLoader.__annotations__), "type checkers too"
    again = ferry.DataLoader(**{name: getattr(loader, name) for name in ["dataset", *asked]})
    assert again._options == loader._options


def test_what_engines_are_told_has_the_names_of_arguments_or_follows_from_them() -> None:
    follows = {"batched", "workers_given", "ahead", "pin"}
    assert {each.name for each in fields(Options)} - follows <= set(SIGNATURE)


OTHERS = {
    "transform": print,
    "cache_limit": 1,
    "cache_policy": "lru",
    "cache": "decoded",
    "cache_dir": "somewhere",
    "cache_dir_limit": 1,
    "threads": "static",
    "storage_options": {"a": "b"},
    "max_pixels": 5,
}


@pytest.mark.parametrize("name", ONLY_OURS)
def test_what_only_our_datasets_understand_has_a_default_and_is_refused_elsewhere(
    name: str,
) -> None:
    default: Any = SIGNATURE[name].default
    ferry.DataLoader(Numbers(4), **{name: default})
    other: Any = OTHERS[name]
    with pytest.raises(ferry.InvalidInput, match=f"^{name}= is for ImageFolder"):
        ferry.DataLoader(Numbers(4), **{name: other})


def test_arguments_are_taken_by_name_and_nothing_else_that_is_in_scope() -> None:
    class Given:
        def __init__(self, dataset: Any, batch_size: int = 1, *, seed: int = 2) -> None:
            self.arguments = Arguments.of(Given.__init__, locals())

    given = Given("a", seed=3).arguments
    assert (given.dataset, given.batch_size, given.seed) == ("a", 1, 3)
    assert given.ours == {"seed": 3}
