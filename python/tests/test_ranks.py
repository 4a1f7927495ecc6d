"""Checkpoints of several ranks."""

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from children import HANG_SECONDS
from safetensors.torch import save_file

import tensorferry as ferry
from tensorferry._checkpoint.jobs import SaveJob
from tensorferry._checkpoint.ranks import alone, index, load
from tensorferry._checkpoint.ranks.split import chunk_sizes, share_out

SIZES = [(1, 3), (2, 1), (2, 2), (2, 3), (2, 4), (3, 2), (3, 5), (4, 2), (4, 3)]


def save(obj: object, path: Path, rank: int, world_size: int, **options: Any) -> Any:
    options = {"tool": "buffered", "durable": False, **options}
    return ferry.save(obj, path, rank=rank, world_size=world_size, **options)


def save_all(objects: list[Any], path: Path, **options: Any) -> Any:
    reports = [save(obj, path, rank, len(objects), **options) for rank, obj in enumerate(objects)]
    assert [report.complete for report in reports] == [False] * (len(objects) - 1) + [True]
    return reports[-1]


def load_all(path: Path, world_size: int, **options: Any) -> list[Any]:
    return [
        ferry.load(path, rank=rank, world_size=world_size, **options) for rank in range(world_size)
    ]


def chunks(tensor: torch.Tensor, parts: int, dim: int = 0) -> list[torch.Tensor]:
    """As torch.chunk, with the empty ones at the end that it leaves out."""
    sizes = chunk_sizes(tensor.shape[dim], parts)
    return [part.clone() for part in torch.split(tensor, sizes, dim)]


def names_beside(path: Path) -> set[str]:
    return {name for name in os.listdir(path.parent) if name != path.name}


def index_of(path: Path) -> Any:
    """What it says, without its checksum: what is changed here is not damage."""
    said = json.loads(path.read_text())
    said.pop("crc32c", None)
    return said


# -- cutting and putting together --


@pytest.mark.parametrize(("saved", "loaded"), SIZES)
@pytest.mark.parametrize("options", [{}, {"mmap": True}, {"verify": False}])
def test_sharded_tensors_are_cut_for_any_number_of_ranks(
    tmp_path: Path, saved: int, loaded: int, options: dict[str, Any]
) -> None:
    path = tmp_path / "model.ferry"
    rows = torch.randn(7, 6)
    columns = torch.randn(3, 7, 2, dtype=torch.float64)
    one = torch.arange(1)
    parts = zip(chunks(rows, saved), chunks(columns, saved, 1), chunks(one, saved), strict=True)
    save_all(
        [{"rows": a, "columns": b, "one": c} for a, b, c in parts],
        path,
        sharded={"rows": 0, "columns": -2, "one": 0},
    )
    whole = ferry.load(path, **options)
    assert torch.equal(whole["rows"], rows)
    assert torch.equal(whole["columns"], columns)
    for got, a, b, c in zip(
        load_all(path, loaded, **options),
        chunks(rows, loaded),
        chunks(columns, loaded, 1),
        chunks(one, loaded),
        strict=True,
    ):
        assert torch.equal(got["rows"], a)
        assert torch.equal(got["columns"], b)
        assert torch.equal(got["one"], c)
        assert got["columns"].is_contiguous()


def test_each_of_as_many_ranks_gets_exactly_what_it_saved(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    objects = [
        {"weight": torch.randn(4, 3), "noise": torch.randn(5 + rank), "rank": rank, "b": [b"x"]}
        for rank in range(3)
    ]
    save_all(objects, path, sharded={"weight": 0})
    saved: Any
    for got, saved in zip(load_all(path, 3), objects, strict=True):
        assert torch.equal(got["weight"], saved["weight"])
        assert torch.equal(got["noise"], saved["noise"])
        assert (got["rank"], got["b"]) == (saved["rank"], saved["b"])


def test_optimizers_are_cut_with_their_models(tmp_path: Path) -> None:
    path = tmp_path / "run.ferry"
    torch.manual_seed(0)
    whole = torch.nn.Linear(6, 8)
    parts = [torch.nn.Linear(6, 4) for _ in range(2)]
    inputs = torch.randn(5, 6)
    states = []
    for part, weight, bias in zip(parts, whole.weight.chunk(2), whole.bias.chunk(2), strict=True):
        part.load_state_dict({"weight": weight, "bias": bias})
    for module in (whole, *parts):
        optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
        module(inputs).square().sum().backward()
        optimizer.step()
        states.append({"model": module.state_dict(), "optimizer": optimizer.state_dict()})
    sharded = {"model.*": 0, "optimizer.state.*.exp_avg*": 0}
    save_all(states[1:], path, sharded=sharded)
    got = ferry.load(path)
    assert list(got["model"]) == ["weight", "bias"]
    assert got["optimizer"]["param_groups"] == states[0]["optimizer"]["param_groups"]
    for name, tensor in states[0]["model"].items():
        torch.testing.assert_close(got["model"][name], tensor)
    for number, state in states[0]["optimizer"]["state"].items():
        for name, tensor in state.items():
            torch.testing.assert_close(got["optimizer"]["state"][number][name], tensor)
    optimizer = torch.optim.Adam(torch.nn.Linear(6, 8).parameters())
    optimizer.load_state_dict(got["optimizer"])


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.complex128, torch.bool]
)
def test_every_dtype_is_put_together(tmp_path: Path, dtype: torch.dtype) -> None:
    path = tmp_path / "model.ferry"
    whole = torch.arange(24).reshape(4, 6).to(dtype)
    save_all([{"x": part} for part in whole.chunk(2, 1)], path, sharded={"x": -1})
    for mmap in (False, True):
        got = ferry.load(path, mmap=mmap)["x"]
        assert got.dtype == dtype
        assert torch.equal(got.view(torch.uint8), whole.view(torch.uint8))


def test_parameters_arrays_and_ties_are_put_together_as_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    whole = torch.randn(4, 2)
    array = np.arange(8, dtype=">i4")
    objects = []
    for part, items in zip(whole.chunk(2), np.split(array, 2), strict=True):
        parameter = torch.nn.Parameter(part.clone())
        objects.append({"in": parameter, "out": parameter, "array": items})
    save_all(objects, path, sharded={"*": 0})
    got = ferry.load(path)
    assert isinstance(got["in"], torch.nn.Parameter)
    assert got["in"] is got["out"]
    assert torch.equal(got["in"], whole)
    assert got["array"].dtype == array.dtype
    assert np.array_equal(got["array"], array)


@pytest.mark.parametrize("loaded", [1, 3, 4, 6])
def test_tied_shards_may_be_empty_on_some_ranks(tmp_path: Path, loaded: int) -> None:
    path = tmp_path / "model.ferry"
    whole = torch.randn(5, 2)
    parts = chunks(whole, 4)
    assert [len(part) for part in parts] == [2, 2, 1, 0]
    parameters = map(torch.nn.Parameter, parts)
    save_all([{"in": each, "out": each} for each in parameters], path, sharded={"*": 0})
    assert torch.equal(ferry.load(path)["out"], whole)
    for got, part in zip(load_all(path, loaded), chunks(whole, loaded), strict=True):
        assert torch.equal(got["in"], part)
        assert torch.equal(got["out"], part)
        assert got["in"] is got["out"] or not len(part)


@pytest.mark.parametrize("ties", ["names", "shared"])
@pytest.mark.parametrize("loaded", [1, 2, 3])
def test_what_is_said_of_one_name_of_a_tied_tensor_is_said_of_all(
    tmp_path: Path, loaded: int, ties: Any
) -> None:
    path = tmp_path / "model.ferry"
    whole = torch.randn(6, 2)
    parts = []
    for part in chunks(whole, 2):
        same = torch.arange(3.0)
        parts.append({"in": part, "out": part.detach(), "same": same, "again": [same, same[1:]]})
    save_all(parts, path, sharded={"in": 0}, replicated=["same"], ties=ties)
    for got, part in zip(load_all(path, loaded), chunks(whole, loaded), strict=True):
        for name in ("in", "out"):
            assert torch.equal(got[name], part)
        assert got["in"].data_ptr() == got["out"].data_ptr()
        assert torch.equal(got["again"][1], torch.tensor([1.0, 2.0]))
        got["same"][1] = 7
        assert got["again"][0][1] == got["again"][1][0] == 7
    with ferry.safe_open(path) as file:
        named = {"in", "out", "same", "again.0", "again.1"} if ties == "names" else {"in", "same"}
        assert set(file.keys()) == named
        assert all(torch.equal(file.get_tensor(name), whole) for name in named & {"in", "out"})


def test_one_tensor_is_not_cut_in_several_ways(tmp_path: Path) -> None:
    part = torch.zeros(2, 2)
    why = "sharded in several ways: 'in' along 0, 'out' along 1"
    with pytest.raises(ferry.InvalidInput, match=why):
        save({"in": part, "out": part.data}, tmp_path / "m", 0, 2, sharded={"in": 0, "out": 1})


def test_a_rank_opens_only_files_that_hold_something_for_it(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    whole = torch.randn(8, 2)
    save_all([{"x": part} for part in chunks(whole, 2)], path, sharded={"x": 0})
    (tmp_path / index_of(path)["files"][1]).unlink()
    assert torch.equal(ferry.load(path, rank=1, world_size=4)["x"], whole[2:4])
    with pytest.raises(ferry.NotFound, match=r"the checkpoint lacks a file: .*-00001-of-00002-"):
        ferry.load(path, rank=2, world_size=4)


def test_keys_and_locations_are_honoured(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    whole = torch.randn(4, 2)
    objects = [{"a": {"x": part}, "own": torch.rand(2)} for part in chunks(whole, 2)]
    save_all(objects, path, sharded={"a.*": 0})
    got = ferry.load(path, keys=["a"])
    assert list(got) == ["a"]
    assert torch.equal(got["a"]["x"], whole)
    assert list(ferry.load(path, keys=["a.x"], rank=1, world_size=2)) == ["a.x"]
    with pytest.raises(ferry.NotFound, match="nothing at 'b'"):
        ferry.load(path, keys=["b"])
    meta = ferry.load(path, keys=["a"], map_location="meta", rank=1, world_size=3)["a"]["x"]
    assert (meta.device.type, list(meta.shape)) == ("meta", [2, 2])
    moved: list[str] = []

    def note(storage: torch.UntypedStorage, saved: str) -> torch.UntypedStorage:
        moved.append(saved)
        return storage

    ferry.load(path, keys=["a"], map_location=note)
    assert moved == ["cpu"]


@pytest.mark.parametrize("mmap", [False, True])
def test_arrays_and_long_bytes_are_loaded_where_tensors_have_no_data(
    tmp_path: Path, mmap: bool
) -> None:
    path = tmp_path / "model.ferry"
    objects = [{"x": torch.ones(2), "a": np.arange(3), "b": bytes(5000)} for _ in range(2)]
    save_all(objects, path, sharded={"x": 0, "a": 0})
    for got in [ferry.load(path, map_location="meta", mmap=mmap), *load_all(path, 2)]:
        assert got["b"] == bytes(5000)
        assert got["a"].tolist() in ([0, 1, 2], [0, 1, 2] * 2)
    for got in load_all(path, 2, map_location="meta", mmap=mmap):
        assert got["x"].is_meta
        assert got["a"].tolist() == [0, 1, 2]


def test_a_damaged_part_is_noticed_wherever_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    save_all([{"x": torch.ones(64, 4)}] * 2, path, sharded={"x": 0})
    damaged = tmp_path / index_of(path)["files"][1]
    raw = bytearray(damaged.read_bytes())
    raw[-1] ^= 1
    damaged.write_bytes(raw)
    with pytest.raises(ferry.Corrupt, match="checksum"):
        ferry.load(path)
    with pytest.raises(ferry.Corrupt, match="checksum"):
        ferry.load(path, rank=2, world_size=3)
    assert ferry.load(path, rank=0, world_size=4)["x"].shape == (32, 4)
    assert ferry.load(path, verify=False)["x"].shape == (128, 4)


def test_a_plain_checkpoint_is_the_same_for_all_ranks(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    ferry.save({"x": torch.arange(3)}, path, tool="buffered", durable=False)
    for got in load_all(path, 2):
        assert torch.equal(got["x"], torch.arange(3))


# -- replicated and private tensors --


def test_replicated_tensors_are_stored_once_and_shared_out_evenly(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    state = {f"layer{number}.weight": torch.randn(1000) for number in range(8)}
    save_all([state] * 4, path, replicated=True)
    held = []
    for name in index_of(path)["files"]:
        with ferry.safe_open(tmp_path / name) as file:
            held.append(file.keys())
    assert [len(names) for names in held] == [2, 2, 2, 2]
    assert sorted(name for names in held for name in names) == sorted(state)
    for got in [ferry.load(path), *load_all(path, 4), *load_all(path, 3)]:
        assert list(got) == list(state)
        assert all(torch.equal(got[name], tensor) for name, tensor in state.items())


def test_views_of_replicated_tensors_are_views_again_on_every_rank(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    flat = torch.randn(10)
    state = {"a": flat[2:6].view(2, 2), "b": flat[4:], "other": torch.zeros(3)}
    save_all([state] * 2, path, replicated=["*"])
    for got in [ferry.load(path), *load_all(path, 2)]:
        assert torch.equal(got["a"], state["a"])
        assert torch.equal(got["b"], state["b"])
        got["a"][1, 1] = 9
        assert got["b"][1] == 9


def test_sharing_out_depends_on_names_and_sizes_only() -> None:
    sizes = {"a": 5, "b": 9, "c": 5, "d": 1, "e": 0}
    shares = share_out(sizes, 2)
    assert shares == share_out(dict(reversed(sizes.items())), 2)
    loads = [sum(size for name, size in sizes.items() if shares[name] == part) for part in (0, 1)]
    assert loads == [10, 10]


def test_private_tensors_that_are_equal_are_loaded_by_any_number_of_ranks(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    save_all([{"x": torch.arange(4), "empty": torch.zeros(0)}] * 2, path)
    for got in [ferry.load(path), *load_all(path, 3)]:
        assert torch.equal(got["x"], torch.arange(4))


def test_private_tensors_that_differ_are_loaded_by_as_many_ranks_only(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    save_all([{"x": torch.full((2,), rank), "step": 1} for rank in range(2)], path)
    assert [got["x"][0].item() for got in load_all(path, 2)] == [0, 1]
    with pytest.raises(ferry.InvalidInput) as caught:
        ferry.load(path)
    assert str(caught.value) == (
        "can't load for another number of ranks: 2 ranks saved it, and 1 load it, but 'x' is not "
        "the same on all ranks, nor sharded; save it as sharded={name: dimension} or, if it is the "
        "same on all, as replicated; or load with world_size=2, or keys= without it"
    )
    assert ferry.load(path, keys=["step"]) == {"step": 1}


def test_nothing_is_dropped_that_only_some_ranks_have(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    save_all([{"a": 1}, {"a": 1, "late": torch.zeros(1)}], path)
    with pytest.raises(ferry.InvalidInput, match="'late' is not the same on all ranks"):
        ferry.load(path)
    assert list(ferry.load(path, rank=1, world_size=2)) == ["a", "late"]


def test_without_checksums_nobody_knows_what_is_equal(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    save_all([{"x": torch.zeros(2)}] * 2, path, checksum=False)
    with pytest.raises(ferry.InvalidInput, match="'x' is not the same on all ranks"):
        ferry.load(path)
    assert torch.equal(ferry.load(path, rank=1, world_size=2)["x"], torch.zeros(2))


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_long_bytes_are_each_ranks_own_as_short_ones_are(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "model.ferry"
    objects = [{"b": kind([rank] * (5000 + rank)), "x": torch.ones(2)} for rank in range(2)]
    objects[1]["late"] = kind(5000)
    save_all(objects, path, sharded={"b": 0}, replicated=True)
    assert [got["b"] for got in load_all(path, 2)] == [saved["b"] for saved in objects]
    for got in [ferry.load(path), *load_all(path, 3)]:
        assert list(got) == ["b", "x"]
        assert got["b"] == objects[0]["b"]


def test_what_is_bytes_on_some_ranks_only_is_not_dropped(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    save_all([{"x": bytes(5000)}, {"x": torch.zeros(2)}], path)
    with pytest.raises(ferry.InvalidInput, match="'x' is not the same on all ranks"):
        ferry.load(path)


@pytest.mark.parametrize("wrong", [{"sharded": {"m.weights": 0}}, {"replicated": ["m.weights"]}])
def test_a_pattern_that_matches_nothing_on_any_rank_is_refused(
    wrong: dict[str, Any], tmp_path: Path
) -> None:
    """Misspelt, it left each rank its own part, of which a load got that of rank 0."""
    path = tmp_path / "model.ferry"
    parts = [{"m": {"weight": part}} for part in torch.ones(8, 4).chunk(2)]
    save(parts[0], path, 0, 2, **wrong)
    words = r"'m\.weights' of sharded or replicated matches no .* such as 'm\.weight'"
    with pytest.raises(ferry.InvalidInput, match=words):
        save(parts[1], path, 1, 2, **wrong)
    assert not path.exists()
    with pytest.raises(ferry.InvalidInput, match="matches no tensor"):
        save({"x": torch.ones(2)}, tmp_path / "one", 0, 1, sharded={"zz": 0})


def test_a_pattern_need_not_match_on_every_rank(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    save({"x": torch.ones(2)}, path, 0, 2, sharded={"x": 0, "y": 0})
    report = save({"x": torch.ones(2), "y": torch.ones(2)}, path, 1, 2, sharded={"x": 0})
    assert report.complete


def test_a_part_that_is_taken_for_the_whole_leads_to_the_index(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    save_all([{"x": torch.zeros(4), "y": torch.zeros(3)}] * 2, path, replicated=True)
    with pytest.raises(ferry.NotFound, match=r"no tensor 'y'; it is one rank's part .* the index"):
        ferry.load(tmp_path / index_of(path)["files"][0])


def test_readers_that_know_no_ranks_find_whole_tensors_only(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    state = {"cut": torch.zeros(2), "same": torch.zeros(3), "once": torch.zeros(4)}
    save_all([state] * 2, path, sharded={"cut": 0}, replicated=["once"])
    weights = index_of(path)["weight_map"]
    assert set(weights) == {"same", "once"}
    for name, file in weights.items():
        with ferry.safe_open(tmp_path / file) as opened:
            assert name in opened.keys()  # noqa: SIM118


# -- what ranks say wrongly --


def one(**tensors: Any) -> dict[str, Any]:
    return tensors


@pytest.mark.parametrize(
    ("objects", "options", "why"),
    [
        (
            [one(x=torch.zeros(3)), one(x=torch.zeros(1))],
            {"sharded": {"x": 0}},
            "'x' is not cut evenly along 0: the ranks have [3, 1], torch.chunk would give [2, 2]",
        ),
        (
            [one(x=torch.zeros(2, 2)), one(x=torch.zeros(2, 3))],
            {"sharded": {"x": 0}},
            "'x' is sharded along 0, but its parts do not fit: F32 [2, 2] on rank 0, F32 [2, 3] on "
            "rank 1",
        ),
        (
            [one(x=torch.zeros(1)), one(y=1)],
            {"sharded": {"x": 0}},
            "'x' is sharded and must be in the objects of all ranks, but is not in that of rank 1",
        ),
        (
            [one(x=torch.zeros(1)), one(x=torch.zeros(2))],
            {"replicated": True},
            "'x' is replicated, but not the same on all ranks: F32 [1] on rank 0, F32 [2] on rank "
            "1",
        ),
    ],
)
def test_parts_that_do_not_fit_make_no_index(
    tmp_path: Path, objects: list[Any], options: dict[str, Any], why: str
) -> None:
    path = tmp_path / "model.ferry"
    save_all([one(old=1)] * 2, path)
    assert not save(objects[0], path, 0, 2, **options).complete
    with pytest.raises(ferry.InvalidInput) as caught:
        save(objects[1], path, 1, 2, **options)
    assert str(caught.value) == why
    assert ferry.load(path) == {"old": 1}
    alone._lines.clear()  # All ranks are started again.
    save_all([one(new=1)] * 2, path)
    assert ferry.load(path) == {"new": 1}


def test_ranks_have_to_agree_what_a_tensor_is(tmp_path: Path) -> None:
    state = {"x": torch.zeros(2, 2)}
    for number, (first, second, why) in enumerate(
        [
            ({"sharded": {"x": 0}}, {"sharded": {"x": 1}}, "along 0 on rank 0, along 1 on rank 1"),
            ({"sharded": {"x": 0}}, {}, "what 'x' is: sharded on rank 0, private on rank 1"),
        ]
    ):
        path = tmp_path / f"{number}.ferry"
        save(state, path, 0, 2, **first)
        with pytest.raises(ferry.InvalidInput, match=why):
            save(state, path, 1, 2, **second)


def test_replicated_tensors_of_some_ranks_only_are_told(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    save({"a": torch.zeros(9), "b": torch.zeros(3)}, path, 0, 2, replicated=True)
    with pytest.raises(ferry.InvalidInput, match="'a' is replicated and must be in the objects"):
        save({"b": torch.zeros(3)}, path, 1, 2, replicated=True)


@pytest.mark.parametrize(
    ("obj", "dim", "why"),
    [
        (torch.zeros(3), 1, "can't save 'x' as sharded along dimension 1: it has 1"),
        (torch.tensor(3), 0, "can't save 'x' as sharded along dimension 0: it has 0"),
        (torch.zeros(3), -2, "can't save 'x' as sharded along dimension -2: it has 1"),
    ],
)
def test_dimensions_that_do_not_exist_are_told(
    tmp_path: Path, obj: torch.Tensor, dim: int, why: str
) -> None:
    with pytest.raises(ferry.InvalidInput) as caught:
        save({"x": obj}, tmp_path / "m.ferry", 0, 2, sharded={"x": dim})
    assert str(caught.value) == why
    assert os.listdir(tmp_path) == []


def test_tensors_that_share_memory_with_others_are_not_sharded(tmp_path: Path) -> None:
    whole = torch.zeros(4)
    with pytest.raises(
        ferry.InvalidInput, match=r"'x' as sharded: it shares memory .*; save clones"
    ):
        save({"x": whole, "y": whole[:2]}, tmp_path / "m.ferry", 0, 2, sharded={"x": 0})


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"rank": 0}, "rank and world_size belong together; world_size is missing"),
        ({"world_size": 2}, "rank and world_size belong together; rank is missing"),
        ({"rank": "0", "world_size": 2}, "rank is a number, not '0'"),
        ({"rank": 0, "world_size": True}, "world_size is a number, not True"),
        ({"rank": 2, "world_size": 2}, "of 2 ranks, rank is 0 to 1, not 2"),
        ({"rank": -1, "world_size": 2}, "of 2 ranks, rank is 0 to 1, not -1"),
        ({"rank": 0, "world_size": 0}, "world_size is 1 to 100000, not 0"),
        ({"rank": 0, "world_size": 100_001}, "world_size is 1 to 100000, not 100001"),
        (
            {"sharded": {"x": 0}},
            "sharded and replicated are for several ranks; give rank and world_size too",
        ),
        (
            {"replicated": True},
            "sharded and replicated are for several ranks; give rank and world_size too",
        ),
        (
            {"rank": 0, "world_size": 2, "sharded": ["x"]},
            'sharded is a dict from patterns of names to dimensions, such as {"*.weight": 0}, not '
            "['x']",
        ),
        (
            {"rank": 0, "world_size": 2, "sharded": {1: 0}},
            "sharded has patterns of names as keys, not 1",
        ),
        (
            {"rank": 0, "world_size": 2, "sharded": {"x": "0"}},
            "sharded gives 'x' the dimension '0'; it is a number",
        ),
        (
            {"rank": 0, "world_size": 2, "replicated": 1},
            "replicated is True or a list of patterns, not 1",
        ),
        (
            {"rank": 0, "world_size": 2, "replicated": ["x", 1]},
            "replicated is a list of patterns of names; it has 1",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_told(
    tmp_path: Path, arguments: dict[str, Any], why: str
) -> None:
    with pytest.raises(ferry.InvalidInput) as caught:
        ferry.save({}, tmp_path / "m.ferry", **arguments)
    assert str(caught.value) == why
    assert os.listdir(tmp_path) == []


def test_tools_of_other_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ferry.InvalidInput, match="several ranks can't save with the tool 'torch'"):
        save({}, tmp_path / "m.ferry", 0, 1, tool="torch")


# -- one save after another --


def test_the_old_checkpoint_stays_until_all_ranks_have_come(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    ferry.save({"step": 0}, path, tool="buffered")
    assert not save({"step": 1}, path, 1, 2).complete
    assert ferry.load(path) == {"step": 0}
    assert save({"step": 1}, path, 0, 2).complete
    assert ferry.load(path) == {"step": 1}
    first = names_beside(path)
    assert not save({"step": 2}, path, 0, 2).complete
    assert ferry.load(path) == {"step": 1}
    assert first < names_beside(path)
    assert save({"step": 2}, path, 1, 2).complete
    assert ferry.load(path) == {"step": 2}
    assert names_beside(path) == set(index_of(path)["files"])
    assert not first & names_beside(path)


def test_a_failed_save_never_meets_one_of_another_process(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    with pytest.raises(ferry.InvalidInput):
        save({"x": object()}, path, 0, 2)
    save({"x": 1}, path, 0, 2)
    (first,) = names_beside(path)
    alone._lines.clear()
    save({"x": 1}, path, 0, 2)
    assert "-g1n1.ferry" in str(names_beside(path) - {first})
    assert "-g2n2x" in first


def test_saves_after_a_failed_one_say_that_they_are_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    with pytest.raises(ferry.InvalidInput) as caught:
        save({"x": object()}, path, 0, 2)
    assert "initialise torch.distributed" in str(caught.value.__notes__)
    save({"x": 1}, path, 0, 2)
    for count in (1, 2):
        with pytest.warns(UserWarning, match=f"{count} saves of rank 0 .* start all ranks again"):
            save({"x": 1}, path, 0, 2)


class FullDisk:
    """A save behind its caller that has failed."""

    staged_seconds = 0.0

    def done(self) -> bool:
        return True

    def wait(self, timeout: float | None = None) -> Any:
        raise ferry.OutOfSpace("the disk is full")


def fail_behind(path: Path) -> None:
    SaveJob(str(path), cast(Any, FullDisk()))


@pytest.mark.parametrize(
    ("failing", "why"),
    [
        ({}, "the disk is full"),
        ({"tool": "torch"}, "can't save with the tool 'torch'"),
        ({"tool": "none"}, "none"),
        ({"sharded": {"x": "0"}}, "sharded gives 'x' the dimension '0'"),
    ],
)
def test_a_save_that_fails_before_it_begins_never_meets_an_earlier_one_of_others(
    tmp_path: Path, failing: dict[str, Any], why: str
) -> None:
    path = tmp_path / "model.ferry"
    save({"step": 100}, path, 1, 2)
    alone._lines.clear()  # From here on, the process of rank 0.
    if not failing:
        fail_behind(tmp_path / "other.ferry")
    with pytest.raises(ferry.Error, match=why):
        save({"step": 100}, path, 0, 2, **failing)
    assert not save({"step": 200}, path, 0, 2).complete
    assert not path.exists()


@pytest.mark.parametrize("same_process", [True, False])
def test_an_index_that_was_moved_keeps_its_files(tmp_path: Path, same_process: bool) -> None:
    path, kept = tmp_path / "latest.ferry", tmp_path / "best.ferry"
    save_all([{"x": torch.full((2,), rank)} for rank in range(2)], path, sharded={"x": 0})
    path.rename(kept)
    for step in range(3):
        if not same_process:
            alone._lines.clear()
        save_all([{"step": step}] * 2, path)
    assert ferry.load(path) == {"step": 2}
    assert ferry.load(kept)["x"].tolist() == [0, 0, 1, 1]


def test_an_index_that_was_copied_keeps_the_files_of_the_first(tmp_path: Path) -> None:
    path, copy = tmp_path / "latest.ferry", tmp_path / "copy.ferry"
    save_all([{"step": 0}] * 2, path)
    shutil.copy(path, copy)
    save_all([{"step": 1}] * 2, copy)
    assert ferry.load(path) == {"step": 0}
    assert ferry.load(copy) == {"step": 1}


def test_a_plain_save_over_an_index_removes_its_files(tmp_path: Path) -> None:
    path, link = tmp_path / "model.ferry", tmp_path / "link.ferry"
    other = tmp_path / "model-00000-of-00002-g0n0.ferry"
    other.write_text("mine")
    save_all([{"step": 0}] * 2, path)
    link.symlink_to(path)
    with pytest.raises(ferry.InvalidInput):
        ferry.save({"step": object()}, link)
    assert ferry.load(path) == {"step": 0}
    ferry.save({"step": 1}, link)
    assert ferry.load(path) == {"step": 1}
    assert names_beside(path) == {link.name, other.name}


def test_files_of_an_index_that_is_not_ours_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    save_file({"x": torch.zeros(1)}, tmp_path / "shard.safetensors")
    path.write_text(json.dumps({"metadata": {}, "weight_map": {"x": "shard.safetensors"}}))
    save_all([{"step": 1}] * 2, path)
    assert ferry.load(path) == {"step": 1}
    assert (tmp_path / "shard.safetensors").exists()


def test_saves_that_never_get_an_index_are_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    for _ in range(alone.UNFINISHED_MAX):
        save({}, path, 0, 2)
    with pytest.warns(UserWarning, match="8 saves of rank 0 to .* have not been completed"):
        save({}, path, 0, 2)


def test_a_link_stays_one_and_all_files_lie_beside_what_it_leads_to(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "model.ferry").write_text("")
    link = tmp_path / "latest.ferry"
    link.symlink_to(real / "model.ferry")
    save_all([{"step": 1}] * 2, link)
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["latest.ferry", "real"]
    assert ferry.load(link) == {"step": 1}


def test_world_sizes_may_change_from_save_to_save(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    whole = torch.randn(6)
    for world_size in (2, 3, 1):
        save_all([{"x": part} for part in chunks(whole, world_size)], path, sharded={"x": 0})
        assert torch.equal(ferry.load(path)["x"], whole)
        assert len(names_beside(path)) == world_size


# -- processes --


def run(
    context: ForkServerContext, target: Callable[..., None], *arguments: tuple[Any, ...]
) -> None:
    """Runs a process for each tuple of arguments; all must succeed."""
    started = [context.Process(target=target, args=each) for each in arguments]
    for process in started:
        process.start()
    try:
        for process in started:
            process.join(HANG_SECONDS)
            assert process.exitcode == 0
    finally:
        for process in started:
            process.kill()


def save_steps(path: Path, rank: int, world_size: int, barrier: Any, steps: int) -> None:
    barrier.wait(HANG_SECONDS)
    for step in range(steps):
        save({"x": torch.full((2,), step), "step": step}, path, rank, world_size, sharded={"x": 0})


def test_processes_that_do_not_talk_save_together(
    tmp_path: Path, processes: ForkServerContext
) -> None:
    path = tmp_path / "model.ferry"
    barrier = processes.Barrier(3)
    run(processes, save_steps, *((path, rank, 3, barrier, 5) for rank in range(3)))
    got = ferry.load(path)
    assert got["step"] == 4
    assert got["x"].tolist() == [4] * 6
    assert index_of(path)["generation"] == 5
    # A second job goes on from there.
    barrier = processes.Barrier(3)
    run(processes, save_steps, *((path, rank, 3, barrier, 2) for rank in range(3)))
    assert index_of(path)["generation"] == 7


def save_once(path: Path, ranks: list[int], value: int) -> None:
    for rank in ranks:
        save({"x": torch.full((1,), value)}, path, rank, 2, sharded={"x": 0})


def test_leftovers_of_a_job_that_died_are_never_mixed_in(
    tmp_path: Path, processes: ForkServerContext
) -> None:
    path = tmp_path / "model.ferry"
    run(processes, save_once, (path, [0, 1], 1))
    run(processes, save_once, (path, [0], 2))
    assert ferry.load(path)["x"].tolist() == [1, 1]
    time.sleep(0.05)
    # The next job counts to the same token; its rank 0 is late.
    run(processes, save_once, (path, [1], 3))
    left = {name for name in names_beside(path) if "-g2n1" in name}
    assert len(left) == 2
    assert ferry.load(path)["x"].tolist() == [1, 1]
    run(processes, save_once, (path, [1, 0], 4))
    assert ferry.load(path)["x"].tolist() == [4, 4]


def talk(rank: int, world_size: int, rendezvous: Path) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world_size
    )


def save_talking(path: Path, rank: int, world_size: int, rendezvous: Path) -> None:
    talk(rank, world_size, rendezvous)
    for step in range(3):
        report = save({"x": torch.full((2,), step)}, path, rank, world_size, sharded={"x": 0})
        assert report.complete
        assert ferry.load(path)["x"].tolist() == [step] * 4
        torch.distributed.barrier()
    # One fails, all fail, and nothing is lost or left.
    before = names_beside(path)
    with pytest.raises(ferry.InvalidInput, match="can't save x") as caught:
        save({"x": object() if rank else torch.zeros(2)}, path, rank, world_size)
    assert ("rank 1 has failed" in str(caught.value)) == (rank == 0)
    with pytest.raises(ferry.InvalidInput, match="'x' is not cut evenly along 0"):
        save({"x": torch.zeros(5 * rank)}, path, rank, world_size, sharded={"x": 0})
    torch.distributed.barrier()
    assert names_beside(path) == before
    save({"x": torch.full((2,), 9)}, path, rank, world_size, sharded={"x": 0})
    torch.distributed.destroy_process_group()


def test_processes_that_talk_return_when_the_checkpoint_is_whole(
    tmp_path: Path, processes: ForkServerContext
) -> None:
    path = tmp_path / "saved" / "model.ferry"
    path.parent.mkdir()
    run(processes, save_talking, *((path, rank, 2, tmp_path / "meet") for rank in range(2)))
    assert ferry.load(path)["x"].tolist() == [9] * 4
    assert names_beside(path) == set(index_of(path)["files"])


def save_after_a_failure_behind(path: Path, rank: int, world_size: int, rendezvous: Path) -> None:
    talk(rank, world_size, rendezvous)
    if rank == 1:
        fail_behind(path)
    with pytest.raises(ferry.OutOfSpace, match="the disk is full") as caught:
        save({"x": 1}, path, rank, world_size)
    assert ("rank 1 has failed" in str(caught.value)) == (rank == 0)
    with pytest.raises(ferry.InvalidInput, match="sharded gives 'x' the dimension 'rows'"):
        save({"x": 1}, path, rank, world_size, sharded={"x": "rows" if rank == 0 else 0})
    save({"x": 2}, path, rank, world_size)
    torch.distributed.destroy_process_group()


def test_all_that_talk_raise_if_one_fails_before_it_begins(
    tmp_path: Path, processes: ForkServerContext
) -> None:
    path = tmp_path / "saved" / "model.ferry"
    path.parent.mkdir()
    ranks = ((path, rank, 2, tmp_path / "meet") for rank in range(2))
    run(processes, save_after_a_failure_behind, *ranks)
    assert ferry.load(path) == {"x": 2}
    assert names_beside(path) == set(index_of(path)["files"])


# -- outside bytes --


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.ferry"
    save_all(
        [{"cut": torch.full((2,), rank), "rep": torch.zeros(2), "own": rank} for rank in range(2)],
        path,
        sharded={"cut": 0},
        replicated=True,
    )
    return path


def changed(said: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**said, **changes}.items() if value is not ...}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tensorferry_index": 0}, "its version is no positive integer"),
        ({"tensorferry_index": "1"}, "its version is no positive integer"),
        ({"token": ...}, "its token makes no sense"),
        ({"token": "../x"}, "its token makes no sense"),
        ({"generation": -1}, "its generation is no number"),
        ({"files": []}, "it names no files"),
        ({"files": {}}, "it names no files"),
        ({"files": ["a", "a"]}, "it names a file twice"),
        ({"files": ["a", "../b"]}, '"../b" is no name of a file beside it'),
        ({"files": ["a", "/etc/passwd"]}, '"/etc/passwd" is no name of a file beside it'),
        ({"files": ["a", ".."]}, '".." is no name of a file beside it'),
        ({"files": ["a", "b\0"]}, "is no name of a file beside it"),
        ({"files": ["a", 1]}, "an integer is no name of a file beside it"),
        ({"files": ["a"]}, "it does not name a file for each rank"),
        ({"world_size": "2"}, "it does not name a file for each rank"),
        ({"tensors": []}, "it has no tensors"),
    ],
)
def test_what_is_wrong_with_an_index_is_told(
    saved: Path, changes: dict[str, Any], why: str
) -> None:
    saved.write_text(json.dumps(changed(index_of(saved), changes)))
    with pytest.raises(ferry.Corrupt) as caught:
        ferry.load(saved)
    assert "the index of the checkpoint is damaged" in str(caught.value)
    assert why in str(caught.value)
    assert str(saved) in str(caught.value)


@pytest.mark.parametrize(
    "said",
    [
        1,
        {},
        {"kind": "other", "dtype": "F32", "shape": [4], "dim": 0},
        {"kind": "sharded", "dtype": "F32", "shape": [4], "dim": 1},
        {"kind": "sharded", "dtype": "F32", "shape": [4], "dim": -1},
        {"kind": "sharded", "dtype": "F32", "shape": [True], "dim": 0},
        {"kind": "sharded", "dtype": "F32", "shape": [-4], "dim": 0},
        {"kind": "sharded", "dtype": "F32", "shape": [1] * 65, "dim": 0},
        {"kind": "sharded", "dtype": 1, "shape": [4], "dim": 0},
        {"kind": "replicated", "dtype": "F32", "shape": [4], "rank": 2},
        {"kind": "replicated", "dtype": "F32", "shape": [4]},
        {"kind": "private", "ranks": [], "equal": False},
        {"kind": "private", "ranks": [2], "equal": False},
        {"kind": "private", "ranks": [1, 0], "equal": False},
        {"kind": "private", "ranks": [0], "equal": True},
        {"kind": "private", "ranks": [0, 1], "equal": 1},
    ],
)
def test_what_an_index_says_of_a_tensor_is_judged(saved: Path, said: Any) -> None:
    whole = index_of(saved)
    whole["tensors"]["cut"] = said
    saved.write_text(json.dumps(whole))
    with pytest.raises(ferry.Corrupt, match='what it says of the tensor "cut" makes no sense'):
        ferry.load(saved)


@pytest.mark.parametrize(
    ("name", "said", "why"),
    [
        ("cut", {"dtype": "F64"}, "the tensor 'cut' is not F64 [2] in the file of rank 0"),
        ("cut", {"shape": [6]}, "the tensor 'cut' is not I64 [3] in the file of rank 0"),
        ("cut", {"shape": [3]}, "the tensor 'cut' is not I64 [1] in the file of rank 1"),
        ("rep", {"shape": [3]}, "the tensor 'rep' is not F32 [3] in the file of rank 0"),
        ("rep", {"rank": 1}, "the tensor 'rep' is not F32 [2] in the file of rank 1"),
        ("cut", ..., "the index does not know the tensor 'cut'"),
    ],
)
def test_an_index_that_contradicts_its_files_is_refused(
    saved: Path, name: str, said: Any, why: str
) -> None:
    whole = index_of(saved)
    if said is ...:
        del whole["tensors"][name]
    else:
        whole["tensors"][name] |= said
    saved.write_text(json.dumps(whole))
    with pytest.raises(ferry.Corrupt) as caught:
        ferry.load(saved)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"weight_map": ', "the file is neither a checkpoint nor an index"),
        ('{"a": 1, "a": 1}', "neither a checkpoint nor an index: a key stands twice"),
        ('{"a": ' + "[" * 100_000, "the file is neither a checkpoint nor an index"),
        ('{"a": 1234567}', "the file is JSON, but no index of a checkpoint"),
        ('{"weight_map": []}', "its weight_map is no object"),
        ('{"weight_map": {"x": "../x"}}', '"../x" is no name of a file beside it'),
        ('{"weight_map": {"x": null}}', "null is no name of a file beside it"),
    ],
)
def test_files_that_are_no_index_are_told(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(ferry.Corrupt) as caught:
        ferry.load(path)
    assert why in str(caught.value)


def test_an_index_of_a_newer_version_asks_for_an_upgrade(saved: Path) -> None:
    saved.write_text(json.dumps({**index_of(saved), "tensorferry_index": 2}))
    with pytest.raises(ferry.Unsupported, match="newer tensorferry, in version 2 of its index"):
        ferry.load(saved)


def test_an_index_that_is_too_long_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "INDEX_BYTES_MAX", 100)
    with pytest.raises(ferry.Corrupt, match="an index has at most 100 bytes"):
        ferry.load(saved)


def test_an_index_that_no_reader_would_take_is_not_made(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved.read_bytes()
    monkeypatch.setattr(index, "INDEX_BYTES_MAX", len(before))
    long = {"x" * 2000: torch.zeros(1)}
    save(long, saved, 0, 2)
    with pytest.raises(ferry.InvalidInput, match="the index of the checkpoint would have"):
        save(long, saved, 1, 2)
    assert saved.read_bytes() == before
    assert ferry.load(saved)["cut"].tolist() == [0, 0, 1, 1]


def test_ranks_are_named_only_where_some_lack_a_tensor(tmp_path: Path) -> None:
    path = tmp_path / "model.ferry"
    save_all([{"x": torch.ones(1)}, {"x": torch.ones(1), "y": torch.ones(1)}], path)
    said = index_of(path)
    assert said["tensors"]["x"] == {"kind": "private", "equal": True}
    assert said["tensors"]["y"]["ranks"] == [1]
    # As it was written before.
    said["tensors"]["x"]["ranks"] = [0, 1]
    before = index.read(str(path))
    path.write_text(json.dumps(said))
    assert index.read(str(path)) == before


def test_files_of_another_save_or_rank_are_refused(saved: Path) -> None:
    first, second = (saved.parent / name for name in index_of(saved)["files"])
    original = second.read_bytes()
    shutil.copy(first, second)
    with pytest.raises(ferry.Corrupt, match="that of rank 0 of 2 in save g1n1, not of rank 1 of 2"):
        ferry.load(saved)
    other = saved.parent / "other.ferry"
    for _ in range(2):
        save_all([{"cut": torch.zeros(2), "rep": torch.zeros(2)}] * 2, other)
    shutil.copy(saved.parent / index_of(other)["files"][1], second)
    with pytest.raises(ferry.Corrupt, match="in save g2n2, not of rank 1 of 2 in save g1n1") as bad:
        ferry.load(saved)
    assert second.name in str(bad.value)
    ferry.save({}, second, tool="buffered")
    with pytest.raises(ferry.Corrupt, match="not a part of a checkpoint of several ranks"):
        ferry.load(saved)
    second.write_bytes(original)
    assert ferry.load(saved)["cut"].tolist() == [0, 0, 1, 1]


def test_an_index_that_is_replaced_while_it_is_read_is_read_again(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = index.read(saved.as_posix())
    save_all([{"step": 2}] * 2, saved)
    answers = [old]
    monkeypatch.setattr(load, "read", lambda path: answers.pop() if answers else index.read(path))
    assert ferry.load(saved) == {"step": 2}


# -- indexes of others --


def test_indexes_of_plain_shards_give_all_tensors(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    tensors = {f"layer.{number}.weight": torch.randn(number, 2) for number in range(4)}
    files = {name: f"model-0000{number % 2}.safetensors" for number, name in enumerate(tensors)}
    for file in set(files.values()):
        held = {name: tensors[name] for name in tensors if files[name] == file}
        save_file(held, tmp_path / file)
    said = {"metadata": {"total_size": 1}, "weight_map": files}
    path.write_text(json.dumps(said, indent=2))
    for got in (ferry.load(path), ferry.load(path, mmap=True), *load_all(path, 2)):
        assert list(got) == list(tensors)
        assert all(torch.equal(got[name], tensor) for name, tensor in tensors.items())
    assert list(ferry.load(path, keys=["layer.2.weight"])) == ["layer.2.weight"]
    assert ferry.load(path, map_location="meta")["layer.3.weight"].shape == (3, 2)
    path.write_text(json.dumps({"weight_map": {**files, "more": "model-00000.safetensors"}}))
    with pytest.raises(ferry.Corrupt, match="says that the tensor 'more' is in this file"):
        ferry.load(path)
    path.write_text(json.dumps({"weight_map": {"more": "none.safetensors"}}))
    with pytest.raises(ferry.NotFound, match=r"lacks a file: .*none\.safetensors"):
        ferry.load(path)


# -- one tensor at a time --


OBJECT: dict[str, Any] = {
    "cut": torch.arange(30.0).reshape(5, 6),
    "rep": torch.arange(4),
    "step": 3,
}


@pytest.fixture(params=[1, 2, 3, 7])
def opened_by_name(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "model.ferry"
    parts = [
        {**OBJECT, "cut": part, "own": torch.full((2,), rank), "raw": bytes(5000)}
        for rank, part in enumerate(chunks(OBJECT["cut"], request.param, 1))
    ]
    save_all(parts, path, sharded={"cut": 1}, replicated=["rep"])
    return path


def test_an_index_is_opened_as_if_it_were_one_file(opened_by_name: Path) -> None:
    with ferry.safe_open(opened_by_name) as file:
        alone = len(file._opened.index.files) == 1  # type: ignore[union-attr]
        assert file.keys() == ["cut", *(["own"] if alone else []), "raw", "rep"]
        assert set(file.offset_keys()) == set(file.keys())
        assert file.metadata() == {"format": "pt"}
        assert torch.equal(file.get_tensor("cut"), OBJECT["cut"])
        assert torch.equal(file.get_tensor("rep"), OBJECT["rep"])
        cut, rep = file.get_slice("cut"), file.get_slice("rep")
        assert (cut.get_shape(), cut.get_dtype()) == ([5, 6], "F32")
        assert (rep.get_shape(), rep.get_dtype()) == ([4], "I64")
        with pytest.raises(ferry.NotFound, match="the index has no tensor 'none'"):
            file.get_tensor("none")
        if not alone:
            for get in (file.get_tensor, file.get_slice):
                with pytest.raises(ferry.NotFound, match="each rank has its own 'own'; open the"):
                    get("own")


@pytest.mark.parametrize(
    "index",
    [
        (),
        ...,
        0,
        -1,
        slice(1, 3),
        (slice(None), slice(2, 5)),
        (slice(None), slice(4, 2)),
        (slice(None), slice(-3, None)),
        (slice(None), slice(None, None, 4)),
        (..., 5),
        (..., -6),
        (1, ...),
        (slice(None, None, 2), ..., slice(1, 100)),
        (0, 3),
        None,
        (None, 0),
        torch.tensor([0, 3]),
        (slice(None), [0, 5]),
        (slice(None), torch.tensor([True, False] * 3)),
    ],
    ids=str,
)
def test_slices_of_a_sharded_tensor_are_those_of_the_whole(
    opened_by_name: Path, index: Any
) -> None:
    whole = OBJECT["cut"]
    with ferry.safe_open(opened_by_name) as file:
        got, expected = file.get_slice("cut")[index], whole[index]
    assert got.shape == expected.shape
    assert torch.equal(got, expected)


def test_a_slice_that_is_no_part_of_a_sharded_tensor_is_an_error_of_indexing(
    opened_by_name: Path,
) -> None:
    with ferry.safe_open(opened_by_name) as file:
        for index in ((0, 6), (0, -7), (0, 0, 0)):
            with pytest.raises(IndexError):
                file.get_slice("cut")[index]


def test_an_index_of_plain_files_is_opened_as_if_it_were_one_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    tensors = {f"layer.{number}.weight": torch.randn(4, number + 1) for number in range(3)}
    files = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(tensors)}
    for file in set(files.values()):
        held = {name: tensors[name] for name in tensors if files[name] == file}
        save_file(held, tmp_path / file, metadata={"format": "pt"})
    path.write_text(json.dumps({"metadata": {"total_size": 96}, "weight_map": files}))
    with ferry.safe_open(path) as opened:
        assert opened.offset_keys() == list(tensors)
        assert opened.metadata() == {"format": "pt"}
        for name, tensor in tensors.items():
            assert torch.equal(opened.get_tensor(name), tensor)
            assert torch.equal(opened.get_slice(name)[1:3], tensor[1:3])
        with pytest.raises(ferry.NotFound, match="the index has no tensor 'none'"):
            opened.get_slice("none")
    path.write_text(json.dumps({"weight_map": {"more": "model-0.safetensors"}}))
    with (
        ferry.safe_open(path) as opened,
        pytest.raises(ferry.Corrupt, match="says that the tensor 'more' is in this file"),
    ):
        opened.get_tensor("more")
    path.write_text(json.dumps({"weight_map": {"more": "none.safetensors"}}))
    with (
        ferry.safe_open(path) as opened,
        pytest.raises(ferry.NotFound, match=r"lacks a file: .*none\.safetensors"),
    ):
        opened.get_tensor("more")


def test_a_damaged_part_is_noticed_when_its_tensor_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.ferry"
    whole = torch.ones(2, 2)
    save_all([{"cut": part} for part in chunks(whole, 2)], path, sharded={"cut": 0})
    last = tmp_path / index_of(path)["files"][1]
    raw = bytearray(last.read_bytes())
    raw[-1] ^= 1
    last.write_bytes(raw)
    with ferry.safe_open(path) as file, pytest.raises(ferry.Corrupt, match="tensor: cut"):
        file.get_tensor("cut")
    with ferry.safe_open(path, verify=False) as file:
        assert not torch.equal(file.get_tensor("cut"), whole)


def test_any_changed_bit_of_an_index_is_an_error_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.ferry"
    whole = torch.arange(16).reshape(4, 4)
    parts = [{"x": part, "y": torch.ones(1), "z": 7} for part in chunks(whole, 1)]
    save_all(parts, path, sharded={"x": 0})
    raw = bytearray(path.read_bytes())
    expected = load_all(path, 2)
    wrong = []
    for at in range(len(raw)):
        for bit in range(8):
            raw[at] ^= 1 << bit
            path.write_bytes(raw)
            raw[at] ^= 1 << bit
            try:
                got = load_all(path, 2, verify=False)
            except ferry.Error:
                continue
            if any(repr(one) != repr(other) for one, other in zip(got, expected, strict=True)):
                wrong.append((at, bit))
    assert not wrong
