"""Saving and loading, against torch and safetensors themselves."""

from __future__ import annotations

import base64
import contextlib
import errno
import gc
import os
import platform
import subprocess
import sys
import tempfile
import textwrap
import zlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from children import HANG_SECONDS
from torch import nn

import tensorferry as ferry
from tensorferry._structure import Ties
from tensorferry._structure.stored import Stored

CORE = ["direct", "buffered"]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def same(a: Any, b: Any) -> bool:
    """Whether two objects are the same, tensors bit for bit."""
    if isinstance(a, torch.Tensor):
        return (
            type(a) is type(b)
            and (a.dtype, a.shape) == (b.dtype, b.shape)
            and a.requires_grad == b.requires_grad
            and torch.equal(bits(a), bits(b))
        )
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype and np.array_equal(a, b))
    if isinstance(a, float) and a != a:
        return bool(b != b)
    return bool(type(a) is type(b) and a == b)


def training_state() -> dict[Any, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(288, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
    for _ in range(2):
        model(torch.randn(4, 3, 8, 8)).square().mean().backward()
        optimizer.step()
        schedule.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "step": 2,
        "best": float("nan"),
        "seed": 2**100,
        "rng": torch.get_rng_state(),
        "order": np.arange(7),
        "shape": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "history": [(1, 0.5), (2, None)],
        3: b"raw",
    }


@pytest.mark.parametrize("tool", CORE)
def test_a_training_state_comes_back_bit_for_bit_by_every_way_to_read(
    tmp_path: Path, tool: str
) -> None:
    state = training_state()
    report = ferry.save(state, tmp_path / "state", tool=tool)
    assert report.tool == tool
    assert report.bytes == (tmp_path / "state").stat().st_size
    assert "saved" in str(report)
    for read in ("auto", "direct", "buffered", "mapped"):
        assert same(ferry.load(tmp_path / "state", tool=read), state)
    assert same(ferry.load(tmp_path / "state", mmap=True), state)
    assert os.listdir(tmp_path) == ["state"]


def test_what_is_loaded_goes_on_training_as_what_was_saved(tmp_path: Path) -> None:
    def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
        for step in range(steps):
            torch.manual_seed(step)
            optimizer.zero_grad()
            model(torch.randn(4, 6)).square().mean().backward()
            optimizer.step()

    def fresh() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
        return model, torch.optim.Adam(model.parameters(), lr=0.01)

    model, optimizer = fresh()
    train(model, optimizer, 3)
    ferry.save({"m": model.state_dict(), "o": optimizer.state_dict()}, tmp_path / "c")
    train(model, optimizer, 3)
    other, other_optimizer = fresh()
    state = ferry.load(tmp_path / "c")
    other.load_state_dict(state["m"])
    other_optimizer.load_state_dict(state["o"])
    train(other, other_optimizer, 3)
    assert same(other.state_dict(), model.state_dict())


@pytest.mark.parametrize("tool", CORE)
def test_the_file_is_one_that_the_safetensors_package_reads_unchanged(
    tmp_path: Path, tool: str
) -> None:
    tensors = {
        "a": torch.randn(1000, 1025),
        "b.c": torch.arange(5, dtype=torch.int16),
        "empty": torch.empty(0, 3, dtype=torch.bfloat16),
        "scalar": torch.tensor(3.5, dtype=torch.float64),
        "f8": torch.randn(33).to(torch.float8_e4m3fn),
    }
    ferry.save(tensors, tmp_path / "x.safetensors", tool=tool)
    read = safetensors.torch.load_file(tmp_path / "x.safetensors")
    assert read.keys() == tensors.keys()
    assert all(same(read[name], tensors[name]) for name in tensors)
    with open(tmp_path / "x.safetensors", "rb") as file:
        assert (8 + int.from_bytes(file.read(8), "little")) % 4096 == 0
    with safetensors.safe_open(tmp_path / "x.safetensors", "pt") as opened:
        assert opened.metadata()["format"] == "pt"


def test_every_dtype_and_layout_of_torch_comes_back(tmp_path: Path) -> None:
    names = {str(value) for value in vars(torch).values() if isinstance(value, torch.dtype)}
    whole = [n.removeprefix("torch.") for n in names if not n.startswith(("torch.q", "torch.bits"))]
    raw = torch.randint(0, 2, (16, 16), dtype=torch.uint8)
    state: dict[str, Any] = {}
    for name in whole:
        dtype = getattr(torch, name)
        try:
            state[name] = raw.view(dtype) if dtype.itemsize > 1 else raw.view(dtype).clone()
        except (RuntimeError, TypeError, NotImplementedError):
            continue
    assert {"bfloat16", "float8_e5m2", "complex64", "complex128", "bool", "uint64"} <= state.keys()
    base = torch.randn(6, 8)
    state |= {"t": base.t(), "step": base[::2, ::3], "wide": base[0].expand(4, 8), "conj": None}
    state["conj"] = torch.randn(3, dtype=torch.complex64).conj()
    state["negative"] = torch.randn(3, dtype=torch.complex64).conj().imag
    ferry.save(state, tmp_path / "s")
    loaded = ferry.load(tmp_path / "s")
    assert loaded.keys() == state.keys()
    for name, tensor in state.items():
        other = loaded[name]
        assert (other.dtype, other.shape) == (tensor.dtype, tensor.shape), name
        if name in ("t", "step", "wide", "conj", "negative"):
            assert torch.equal(other, tensor), name
        else:
            assert torch.equal(bits(other), bits(tensor)), name


def tied_states() -> dict[str, dict[str, Any]]:
    """State dicts with memory under several names, and of what shape each name is."""
    model = nn.Module()
    model.embed = nn.Embedding(7, 4)
    model.head = nn.Linear(4, 7, bias=False)
    model.head.weight = model.embed.weight
    w = torch.arange(72.0).reshape(6, 12)
    q, k, v = w.chunk(3, 1)
    parameter = nn.Parameter(torch.randn(3))
    return {
        "tied weights": model.state_dict(),
        "one parameter twice": {"a": parameter, "b": parameter, "c": parameter.data},
        "chunks": {"q": q, "k": k, "v": v},
        "chunks beside the whole": {"q": q, "w": w, "v": v},
        "rows": dict(zip("abc", w.chunk(3), strict=True)),
        "transposed": {"w": w, "wt": w.T, "again": w.T},
        "expanded": {"bias": w[0], "all": w[0].expand(5, 12), "one": w[0, 0].expand(3)},
        "overlapping": {"a": w.view(-1)[3:20], "b": w.view(-1)[10:40], "c": w.view(-1)[12:60:5]},
        "other dtypes": {"f": w, "i": w.view(torch.int32)[1:], "h": w.view(torch.bfloat16)[:, 2:9]},
        "eighths": {"f": w.to(torch.float8_e4m3fn), "b": (w > 5)[:, 1:], "b2": (w > 5)},
        "nested": {"model": {"w": w, "x": [w[1], w[:, 2]]}, "ema": w},
        "arrays": {"a": (array := np.arange(5)), "b": array},
    }


def flat_tensors(state: Any, prefix: str = "") -> dict[str, torch.Tensor]:
    items = state.items() if isinstance(state, dict) else enumerate(state)
    flat: dict[str, torch.Tensor] = {}
    for key, item in items:
        if isinstance(item, dict | list):
            flat |= flat_tensors(item, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = torch.as_tensor(item)
    return flat


@pytest.mark.parametrize("name", tied_states())
@pytest.mark.parametrize("way", ["save", "behind", "streamed", "ranks"])
def test_others_find_every_tensor_by_its_name_and_ours_ties_it_again(
    tmp_path: Path, name: str, way: str
) -> None:
    state, path = tied_states()[name], tmp_path / "x.safetensors"
    if way == "ranks":
        ferry.save(state, path, rank=0, world_size=1)
        assert same(ferry.load(path, rank=0, world_size=1), state)
        (path,) = (found for found in tmp_path.iterdir() if found != path)
    elif way == "save":
        ferry.save(state, path, tool="direct")
    else:
        ferry.save_async(state, path, staging="4MiB" if way == "streamed" else None).wait()
    expected = flat_tensors(state)
    with safetensors.safe_open(path, framework="pt") as file:
        assert set(file.keys()) == set(expected)
        assert {key: file.get_slice(key).get_shape() for key in file.keys()} == {  # noqa: SIM118
            key: list(tensor.shape) for key, tensor in expected.items()
        }
    theirs = safetensors.torch.load_file(path)
    assert {key: tensor.dtype for key, tensor in theirs.items()} == {
        key: tensor.dtype for key, tensor in expected.items()
    }
    assert all(torch.equal(bits(theirs[key]), bits(expected[key])) for key in expected)
    bytes_of_all = sum(tensor.numel() * tensor.itemsize for tensor in expected.values())
    assert path.stat().st_size == (path.stat().st_size - bytes_of_all) // 4096 * 4096 + bytes_of_all
    if way == "ranks":
        return
    every: list[dict[str, Any]] = [{}, {"mmap": True}, {"verify": False}, {"tool": "mapped"}]
    for options in every:
        got = ferry.load(path, **options)
        assert same(got, state)
        assert ties_of(flat_tensors(got)) == ties_of(expected)
    for key in expected:
        assert same(ferry.load(path, keys=[key])[key], key_of(state, key))
    bare = flat_tensors(ferry.load(path, map_location="meta"))
    if name != "arrays":
        assert {key: tensor.shape for key, tensor in bare.items()} == {
            key: tensor.shape for key, tensor in expected.items()
        }


def key_of(state: Any, path: str) -> Any:
    if path in state:
        return state[path]
    first, _, rest = path.partition(".")
    return key_of(state[first], rest) if isinstance(state, dict) else state[int(path)]


def ties_of(tensors: dict[str, torch.Tensor]) -> set[tuple[str, str]]:
    """The pairs that show each other's changes."""
    pairs = set()
    for one, tensor in tensors.items():
        before = {name: bits(other).clone() for name, other in tensors.items()}
        first = tensor.detach()[(0,) * tensor.dim()].reshape(1).view(torch.uint8)
        first ^= 1
        changed = (name for name in tensors if not torch.equal(bits(tensors[name]), before[name]))
        pairs |= {(one, name) for name in changed}
        first ^= 1
    return pairs


def test_modules_with_tied_weights_are_tied_again(tmp_path: Path) -> None:
    embedding, head = nn.Embedding(1000, 64), nn.Linear(64, 1000, bias=False)
    head.weight = embedding.weight
    state = OrderedDict(nn.ModuleDict({"embedding": embedding, "head": head}).state_dict())
    choices: list[tuple[Ties, int]] = [("names", 2), ("shared", 1)]
    for ties, copies in choices:
        ferry.save(state, tmp_path / "tied", ties=ties)
        size = (tmp_path / "tied").stat().st_size
        assert size - 4096 == copies * embedding.weight.nbytes
        loaded = ferry.load(tmp_path / "tied")
        loaded["embedding.weight"][0, 0] = 42
        assert loaded["head.weight"][0, 0] == 42
        ferry.save([embedding.weight, embedding.weight], tmp_path / "twice", ties=ties)
        first, second = ferry.load(tmp_path / "twice")
        assert first is second
        assert isinstance(first, nn.Parameter)


def test_ties_may_be_stored_once_and_others_then_find_less(tmp_path: Path) -> None:
    w = torch.arange(72.0).reshape(6, 12)
    q, k, _ = w.chunk(3, 1)
    state = {"embed": w, "head": w.detach(), "q": q.clone(), "k": k}
    sizes = {}
    choices: tuple[Ties, Ties] = ("names", "shared")
    for ties in choices:
        ferry.save(state, tmp_path / ties, ties=ties)
        sizes[ties] = (tmp_path / ties).stat().st_size
        got = ferry.load(tmp_path / ties)
        assert same(got, state)
        assert ties_of(got) == ties_of(state)
    assert sizes["names"] - sizes["shared"] == w.nbytes + k.numel() * 4
    assert set(safetensors.torch.load_file(tmp_path / "shared")) == {"embed", "q"}
    assert set(safetensors.torch.load_file(tmp_path / "names")) == set(state)
    saves: list[Any] = [ferry.save, ferry.save_async, ferry.TensorIO(persist=False).save]
    for save in saves:
        with pytest.raises(ferry.InvalidInput, match="ties is 'names' or 'shared', not 'none'"):
            save(state, tmp_path / "x", ties="none")


def test_what_safetensors_has_no_word_for_is_found_as_the_guide_says(tmp_path: Path) -> None:
    x, y = torch.randn(2, 3), torch.randn(4)
    complex_ = torch.randn(5, dtype=torch.complex128)
    state = {"a": {"b": x}, "a.b": y, "c": complex_}
    ferry.save(state, tmp_path / "x")
    theirs = safetensors.torch.load_file(tmp_path / "x")
    assert set(theirs) == {"a.b", "a.b#2", "c"}
    assert same(theirs["a.b"], x)
    assert same(theirs["a.b#2"], y)
    assert (theirs["c"].dtype, theirs["c"].shape) == (torch.uint8, (5, 16))
    assert torch.equal(theirs["c"].view(torch.complex128).reshape(5), complex_)
    assert same(ferry.load(tmp_path / "x"), state)


def test_a_lone_tensor_that_is_not_contiguous_comes_back_contiguous(tmp_path: Path) -> None:
    image = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    ferry.save([image], tmp_path / "x")
    (got,) = ferry.load(tmp_path / "x")
    assert torch.equal(got, image)
    assert got.is_contiguous()
    assert not image.is_contiguous()


def test_memory_of_a_loaded_tensor_is_not_torchs_to_resize(tmp_path: Path) -> None:
    ferry.save({"a": torch.ones(100_000)}, tmp_path / "x")
    with pytest.raises(RuntimeError, match="not resizable"):
        ferry.load(tmp_path / "x")["a"].resize_(200_000)


def test_what_is_not_read_of_ties_is_neither_loaded_nor_verified(tmp_path: Path) -> None:
    w = torch.randn(1000, 10)
    ferry.save({"w": w, "tied": w.detach(), "row": w[3]}, tmp_path / "x")
    for name in ("tied", "row"):
        damage(tmp_path / "x", name)
    assert same(ferry.load(tmp_path / "x"), {"w": w, "tied": w, "row": w[3]})
    with pytest.raises(ferry.Corrupt, match="tensor: row"):
        ferry.load(tmp_path / "x", keys=["row"])


OF_VERSION_1 = (
    "c-rk$OK#gR5LJ7D_6P#kL?BWh%SM6Pn*!Z+(^YM_v`8gtER&(=q_!a-%O0ag=}~%wF1zfIQc^`p3<M~UF7%)$X-0"
    "f+$dRbuuRMnXS}sdr7-xnpmuPZ8na)C*p$UpP;XDzUFQPOjt62Ck&+~C6#(tiqX}n5^KTb#z$MM(?M>OG_j}b<>)"
    "Fm@upbSJtY$~a9q4f?@hdH_wx+>&mjwS@pQFbP>^J-f{X!KS<#z?t_XpUCf9Atve5oG1+i^vS*!GRYycUR4&so_M"
    "BsbRR5{YP-WVWqek1Y@c*rfmEvTG+_wg1eB|Q093hY!#B!*3dk`4u?HM9Nn=DoTED8sGOr>8WKk6zs<RAL*v0tS+"
    "V&CKBlm3?zK`it-Ltme{oV7soAM;b-3B7CZDe*Ga+@^!icge_Vz*4ZBvNp-8LndJkX}|=PIAN@|Vw5zWwf4Q<G`U"
    "cD?e<71(S`wR7>CB84|*Mf)R@-uEV($x^MwS3=YNeA^kUtwV4U*L4lw17h|c;pDKL-zO1laknVDrUgdsKhi9sf>e"
    "NMv;fsrSM@HWU6tJ(eI1SPh+3g~TuATBMii%kmEFFYuKZ)#QI8&wrvWChE4zPGM=(k5D?tYNbWzv-fB^#r3>YwAz"
    "<>e&AG{VX+UrZNi|e;=n!*9R27U+r0R9AeGtYYs^nt;w8SBPBQ8xvC0DcB4>jV5YYkYpSe%|yCRf8N_"
)
"""A file of the first version: views of one stored tensor, and of bytes that no tensor covers."""


def test_a_file_of_the_first_version_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(zlib.decompress(base64.b85decode(OF_VERSION_1)))
    w = torch.arange(12.0).reshape(3, 4)
    q, k, v = torch.arange(18.0).reshape(3, 6).chunk(3, 1)
    parameter = nn.Parameter(torch.ones(2))
    expected = {
        "w": w,
        "row": w[1],
        "t": w.T,
        "p": parameter,
        "again": parameter,
        "tied": parameter.detach(),
        "q": q,
        "k": k,
        "v": v,
        "a": np.arange(3),
        "z": torch.tensor([1 + 2j], dtype=torch.complex128),
        "lr": 0.5,
    }
    for mmap in (False, True):
        got = ferry.load(tmp_path / "x", mmap=mmap)
        assert same(got, expected)
        assert got["p"] is got["again"]
        assert got["q"].untyped_storage().data_ptr() == got["v"].untyped_storage().data_ptr()
        assert got["row"].data_ptr() == got["w"].data_ptr() + 16


def test_what_can_not_be_saved_is_named_before_a_byte_is_written(tmp_path: Path) -> None:
    state = {"optimizer": {"state": {3: {"hook": print}}}}
    with pytest.raises(ferry.InvalidInput, match=r"can't save optimizer\.state\[3\]\.hook: "):
        ferry.save(state, tmp_path / "x")
    with pytest.raises(ferry.InvalidInput, match=r"optimizer\.state\[3\]\.hook"):
        ferry.save_async(state, tmp_path / "x")
    assert os.listdir(tmp_path) == []


def test_other_formats_are_known_by_their_content(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(3, 4), "b": torch.arange(5)}
    safetensors.torch.save_file(tensors, tmp_path / "1", metadata={"note": "theirs"})
    torch.save(tensors, tmp_path / "2")
    torch.save(tensors, tmp_path / "3", _use_new_zipfile_serialization=False)
    for name in "123":
        assert same(dict(sorted(ferry.load(tmp_path / name).items())), tensors)
        assert same(ferry.load(tmp_path / name, keys=["b"]), {"b": tensors["b"]})
    with (tmp_path / "4").open("wb") as file:
        np.save(file, tensors["a"].numpy())
    assert same(ferry.load(tmp_path / "4"), tensors["a"])
    with pytest.raises(ferry.InvalidInput, match="no parts to choose"):
        ferry.load(tmp_path / "4", keys=["a"])


def test_a_path_that_splits_in_several_ways_finds_the_same_in_every_format(tmp_path: Path) -> None:
    state = {"a": {"b": 1, "c": [2, (3, None)]}, "a.b": 4, "a.c": {"d": 5}, 6: 7, "6": 8}
    values = {"a.b": 4, "a.c.1.0": 3, "a.c.1.1": None, "a.c.d": 5, "6": 7}
    for tool in ("direct", "torch"):
        ferry.save(state, tmp_path / tool, tool=tool)
        assert ferry.load(tmp_path / tool, keys=list(values)) == values
        with pytest.raises(ferry.NotFound, match=r"has nothing at 'a\.x'"):
            ferry.load(tmp_path / tool, keys=["a.x"])


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return os.system, ("touch " + str(tmp_path / "ran"),)

    torch.save({"a": Bomb()}, tmp_path / "x.pt")
    with pytest.raises(ferry.Unsupported, match=r"the file holds \w+\.system, which torch's safe"):
        ferry.load(tmp_path / "x.pt")
    assert not (tmp_path / "ran").exists()


def test_the_tools_of_others_save_durably_too_and_say_what_they_can_not(tmp_path: Path) -> None:
    state = {"a": torch.randn(3)}
    assert ferry.save(state, tmp_path / "x", tool="torch").tool == "torch"
    assert same(torch.load(tmp_path / "x", weights_only=True), state)
    assert same(ferry.load(tmp_path / "x"), state)
    ferry.save(state["a"], tmp_path / "y", tool="numpy")
    assert np.array_equal(np.load(tmp_path / "y"), state["a"].numpy())
    for obj, tool, reason in [
        (state, "numpy", "a .npy file holds one tensor"),
        ({"a": np.arange(3)}, "torch", "torch's safe loader could not load it again"),
    ]:
        with pytest.raises(ferry.InvalidInput, match="can't write this object|" + reason):
            ferry.save(obj, tmp_path / "z", tool=tool)
    with pytest.raises(ferry.InvalidInput, match="no tool"):
        ferry.save(state, tmp_path / "z", tool="pigeon")
    with pytest.raises(ferry.InvalidInput, match="no goal"):
        ferry.save(state, tmp_path / "z", goal="fast")
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]


def test_keys_load_a_part_and_read_no_more(tmp_path: Path) -> None:
    state = training_state()
    ferry.save(state, tmp_path / "s")
    part = ferry.load(tmp_path / "s", keys=["model.0.weight", "optimizer.state.1", "step"])
    assert same(part["model.0.weight"], state["model"]["0.weight"])
    assert same(part["optimizer.state.1"], state["optimizer"]["state"][1])
    assert part["step"] == 2
    assert same(ferry.load(tmp_path / "s", keys="schedule"), {"schedule": state["schedule"]})
    with pytest.raises(ferry.NotFound, match=r"nothing at 'model.0.wieght'; close to it"):
        ferry.load(tmp_path / "s", keys=["model.0.wieght"])
    # Damage elsewhere does not matter to who does not read it.
    with ferry.safe_open(tmp_path / "s") as file:
        assert "model.0.weight" in file.offset_keys()
    damage(tmp_path / "s", "rng")
    assert ferry.load(tmp_path / "s", keys=["step"]) == {"step": 2}


def damage(path: Path, name: str) -> None:
    """Flips one bit of a tensor."""
    import json

    content = bytearray(path.read_bytes())
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    content[8 + length + header[name]["data_offsets"][0]] ^= 1
    path.write_bytes(content)


def test_damage_is_told_by_the_name_of_the_tensor(tmp_path: Path) -> None:
    state = {"good": torch.randn(5000), "bad": torch.randn(3_000_000), "small": torch.ones(3)}
    for name in ("bad", "small"):
        ferry.save(state, tmp_path / "x")
        damage(tmp_path / "x", name)
        for tool in ("direct", "buffered", "mapped"):
            with pytest.raises(ferry.Corrupt, match=rf"checksum of a tensor.*tensor: {name}"):
                ferry.load(tmp_path / "x", tool=tool)
        assert same(ferry.load(tmp_path / "x", keys=["good"])["good"], state["good"])
        assert not same(ferry.load(tmp_path / "x", verify=False), state)
    ferry.save(state, tmp_path / "x", checksum=False)
    damage(tmp_path / "x", "bad")
    ferry.load(tmp_path / "x")


HEADER = {
    "q": torch.arange(6.0).reshape(2, 3),
    "lr": 0.5,
    "names": ["a", ("b", 3)],
    "x": torch.ones(4, dtype=torch.int16),
}


def _load_by_name(path: Path) -> Any:
    with ferry.safe_open(path, verify=False) as file:
        names = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return names, file.get_slice("x")[1:]


UNVERIFIED: list[Callable[[Path], Any]] = [
    lambda path: ferry.load(path, verify=False),
    lambda path: ferry.load(path, verify=False, mmap=True),
    lambda path: ferry.load(path, verify=False, keys=["q", "names"]),
    lambda path: ferry.load(path, verify=False, map_location="meta")["q"].shape,
    _load_by_name,
]


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("way", range(len(UNVERIFIED)))
def test_a_changed_header_is_an_error_or_the_same_object_also_without_verifying(
    tmp_path: Path, way: int, checksum: bool
) -> None:
    path, load = tmp_path / "x", UNVERIFIED[way]
    ferry.save(HEADER, path, checksum=checksum)
    raw = bytearray(path.read_bytes())
    expected = load(path)
    # Behind the text there are only spaces; two of them stand for all.
    text = raw.rindex(b"}", 0, 4096) + 3
    wrong = []
    for at in [*range(text), 4095]:
        for bit in range(8) if way == 0 else [at % 8]:
            raw[at] ^= 1 << bit
            path.write_bytes(raw)
            raw[at] ^= 1 << bit
            with contextlib.suppress(ferry.Corrupt, ferry.Truncated, ferry.Unsupported):
                if not same(load(path), expected):
                    wrong.append((at, bit))
    assert not wrong


def test_safe_open_gives_tensors_and_slices_as_that_of_safetensors_does(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(100, 7), "b": torch.arange(10)}
    ferry.save(tensors, tmp_path / "x")
    with (
        ferry.safe_open(tmp_path / "x") as ours,
        safetensors.safe_open(tmp_path / "x", framework="pt") as theirs,
    ):
        assert ours.keys() == sorted(theirs.keys())
        assert ours.offset_keys() == list(theirs.offset_keys())
        assert ours.metadata() == theirs.metadata()
        assert same(ours.get_tensor("a"), theirs.get_tensor("a"))
        a, b = ours.get_slice("a"), theirs.get_slice("a")
        assert (a.get_shape(), a.get_dtype()) == (b.get_shape(), b.get_dtype())
        for index in [slice(3, 9), (slice(None), slice(2, 4)), slice(None), (slice(5), slice(1))]:
            assert same(a[index], b[index])
        assert a[-1].shape == (7,)
        with pytest.raises(ferry.NotFound, match="no tensor 'c'"):
            ours.get_tensor("c")
        with pytest.raises(ferry.NotFound, match="no tensor 'c'"):
            ours.get_slice("c")
    with pytest.raises(ferry.InvalidInput, match="framework is 'pt', not 'tf'"):
        ferry.safe_open(tmp_path / "x", "tf")


def test_a_mapped_checkpoint_is_private_and_outlives_its_file(tmp_path: Path) -> None:
    old, new = {"a": torch.zeros(100_000)}, {"a": torch.ones(100_000)}
    ferry.save(old, tmp_path / "x")
    mapped = ferry.load(tmp_path / "x", mmap=True)
    ferry.save(new, tmp_path / "x")
    assert same(mapped, old)
    again = ferry.load(tmp_path / "x", mmap=True)
    again["a"][5] = 7
    assert same(ferry.load(tmp_path / "x"), new)
    # What was loaded mapped can be saved over itself.
    ferry.save(again, tmp_path / "x")
    assert ferry.load(tmp_path / "x")["a"][5] == 7


def test_loaded_tensors_own_their_memory(tmp_path: Path) -> None:
    ferry.save({"a": torch.zeros(1 << 20), "b": torch.zeros(3)}, tmp_path / "x")
    loaded = ferry.load(tmp_path / "x")
    (tmp_path / "x").write_bytes(b"")
    for tensor in loaded.values():
        tensor += 1
        assert tensor.sum() == tensor.numel()
        assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_map_location_means_what_it_means_to_torch(tmp_path: Path) -> None:
    state = {"a": torch.randn(4), "b": nn.Parameter(torch.randn(3))}
    ferry.save(state, tmp_path / "x")
    assert same(ferry.load(tmp_path / "x", map_location="cpu"), state)
    assert same(ferry.load(tmp_path / "x", map_location=torch.device("cpu")), state)
    assert same(ferry.load(tmp_path / "x", map_location={"cuda:0": "cpu"}), state)
    assert same(ferry.load(tmp_path / "x", map_location=lambda storage, _: storage), state)
    meta = ferry.load(tmp_path / "x", map_location="meta")
    assert {key: (value.device.type, value.shape) for key, value in meta.items()} == {
        "a": ("meta", (4,)),
        "b": ("meta", (3,)),
    }
    assert isinstance(meta["b"], nn.Parameter)
    with pytest.raises(ferry.InvalidInput, match="map_location is a device"):
        ferry.load(tmp_path / "x", map_location=3)  # type: ignore[arg-type]
    if not torch.cuda.is_available():
        with pytest.raises(ferry.Unsupported, match="can't put a tensor on cuda:0 here"):
            ferry.load(tmp_path / "x", map_location="cuda:0")


def test_a_save_in_the_background_holds_what_the_tensors_were(tmp_path: Path) -> None:
    tensor = torch.arange(20_000_000, dtype=torch.int32)
    view = torch.arange(1_000_000).view(1000, 1000).t()
    expected = {"t": tensor.clone(), "v": view.clone()}
    job = ferry.save_async({"t": tensor, "v": view}, tmp_path / "x")
    assert job.wait_staged() > 0
    tensor.zero_()
    view.zero_()
    report = job.wait()
    assert job.done()
    assert report.bytes == (tmp_path / "x").stat().st_size
    assert job.wait() == report
    assert same(ferry.load(tmp_path / "x"), expected)


def test_more_than_fits_into_staging_memory_is_streamed(tmp_path: Path) -> None:
    tensors = {str(i): torch.randn(2_000_000) for i in range(20)}
    job = ferry.save_async(tensors, tmp_path / "x", staging="32MiB")
    job.wait()
    assert same(ferry.load(tmp_path / "x"), tensors)


def test_saves_of_one_path_take_effect_in_their_order(tmp_path: Path) -> None:
    jobs = [
        ferry.save_async({"n": torch.full((1 + 3_000_000 * (n % 2),), n)}, tmp_path / "x")
        for n in range(6)
    ]
    ferry.save({"n": torch.tensor([6])}, tmp_path / "x")
    assert ferry.load(tmp_path / "x")["n"] == 6
    for job in jobs:
        job.wait()
    assert os.listdir(tmp_path) == ["x"]


def test_a_full_disk_leaves_the_old_file_and_no_other(small_disk: Path) -> None:
    old, large = {"a": torch.randn(1000)}, {"a": torch.zeros(8 << 20)}
    ferry.save(old, small_disk / "x")
    for tool in ("direct", "buffered", "torch"):
        with pytest.raises(ferry.OutOfSpace):
            ferry.save(large, small_disk / "x", tool=tool)
        assert same(ferry.load(small_disk / "x"), old)
        assert os.listdir(small_disk) == ["x"]
    with pytest.raises(ferry.OutOfSpace) as caught:
        ferry.save(large["a"], small_disk / "x", tool="numpy")
    assert caught.value.errno == errno.ENOSPC, "NumPy keeps it to itself"
    with pytest.raises(ferry.OutOfSpace):
        ferry.save_async(large, small_disk / "x").wait()
    assert os.listdir(small_disk) == ["x"]
    ferry.save(old, small_disk / "x")


def run(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)


def test_a_failure_in_the_background_is_raised_by_the_next_call(tmp_path: Path) -> None:
    done = run(
        """
        import sys, torch, tensorferry as ferry
        from tensorferry._checkpoint.jobs import SaveJob
        path = sys.argv[1]
        class Failing:
            staged_seconds = 0.0
            def done(self): return True
            def wait(self, timeout=None): raise ferry.OutOfSpace("the disk is full")
        SaveJob(path, Failing())
        try:
            ferry.save({"a": torch.ones(3)}, path)
        except ferry.OutOfSpace as error:
            print(error, error.__notes__)
        ferry.save({"a": torch.ones(3)}, path)
        print(ferry.load(path)["a"].sum())
        SaveJob(path, Failing())
        """,
        tmp_path / "x",
    )
    assert "the disk is full" in done.stdout, done.stderr
    assert "was begun earlier, and not waited for" in done.stdout
    assert "tensor(3.)" in done.stdout
    assert "tensorferry: a save was lost" in done.stderr


def test_a_file_that_can_not_get_its_name_fails_at_the_next_call_and_at_exit(
    tmp_path: Path,
) -> None:
    done = run(
        """
        import os, sys, time, torch, tensorferry as ferry
        state = {"a": torch.ones(16 << 20)}
        def lose(path):
            while True:
                job = ferry.save_async(state, path)
                try:
                    os.mkdir(path)      # the name is taken while the file is being written
                    return job
                except FileExistsError:
                    job.wait()          # it was faster: once more
                    os.remove(path)
        job = lose(f"{sys.argv[1]}/first")
        while not job.done():
            time.sleep(0.001)
        try:
            ferry.save({"b": torch.ones(3)}, f"{sys.argv[1]}/next")
        except ferry.Error as error:
            print(error, *error.__notes__)
        ferry.save({"b": torch.ones(3)}, f"{sys.argv[1]}/next")
        lose(f"{sys.argv[1]}/last")
        """,
        tmp_path,
    )
    why = "can't put a saved file in its place (file: "
    assert done.stdout.startswith(f"{why}{tmp_path}/first"), done.stderr
    assert "was begun earlier, and not waited for" in done.stdout
    assert f"a save was lost: {tmp_path}/last: {why}{tmp_path}/last" in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["first", "last", "next"], "no draft is left"


def test_a_save_in_the_background_needs_no_interpreter(tmp_path: Path) -> None:
    done = run(
        """
        import ctypes, sys, time, torch, tensorferry as ferry
        path = sys.argv[1]
        keeping_the_lock = ctypes.PyDLL(None)
        sys.setswitchinterval(1000)
        job = ferry.save_async({"a": torch.ones(16 << 20)}, path)
        # From here on no other thread could run Python: nothing gives the interpreter's lock back.
        is_there = lambda: keeping_the_lock.access(path.encode(), 0) == 0
        end = time.monotonic() + 60
        while not is_there() and time.monotonic() < end:
            keeping_the_lock.usleep(1000)
        print(is_there())
        job.wait()
        """,
        tmp_path / "x",
    )
    assert done.stdout == "True\n", done.stderr
    assert ferry.load(tmp_path / "x")["a"].sum() == 16 << 20


FSYNC = {"x86_64": 74, "aarch64": 82}
"""The number of the system call."""


@pytest.mark.skipif(platform.machine() not in FSYNC, reason="a system call by its number")
def test_a_directory_that_can_not_be_synced_is_told(tmp_path: Path) -> None:
    done = run(
        """
        import ctypes, struct, sys
        # A filter on system calls: fsync(2) fails. The ring syncs files without it.
        load, compare = (0x20, 0, 0, 0), (0x15, 0, 1, int(sys.argv[2]))
        fail, allow = (0x06, 0, 0, 0x0005_0000 | 5), (0x06, 0, 0, 0x7FFF_0000)
        steps = b"".join(struct.pack("HBBI", *step) for step in (load, compare, fail, allow))
        steps = ctypes.create_string_buffer(steps)
        program = struct.pack("HxxxxxxP", 4, ctypes.addressof(steps))
        libc = ctypes.CDLL(None)
        assert libc.prctl(38, 1, 0, 0, 0) == 0
        assert libc.prctl(22, 2, program, 0, 0) == 0
        import torch, tensorferry as ferry
        print(ferry.Engine().facts()["backend"])
        try:
            ferry.save({"a": torch.ones(3)}, sys.argv[1])
        except ferry.Error as error:
            print(error)
        ferry.save({"a": torch.ones(5)}, sys.argv[1], durable=False)
        """,
        tmp_path / "x",
        FSYNC[platform.machine()],
    )
    backend, _, told = done.stdout.partition("\n")
    if backend != "ring":
        pytest.skip("files are synced by the same system call here")
    assert done.returncode == 0, done.stderr
    assert told.startswith("the saved file is in its place, but its directory can't be synced")
    assert ferry.load(tmp_path / "x")["a"].sum() == 5


def test_the_interpreter_waits_for_a_save_that_is_under_way(tmp_path: Path) -> None:
    done = run(
        """
        import sys, torch, tensorferry as ferry
        ferry.save_async({"a": torch.ones(30_000_000)}, sys.argv[1])
        """,
        tmp_path / "x",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert ferry.load(tmp_path / "x")["a"].sum() == 30_000_000


def test_a_forked_child_saves_with_an_engine_of_its_own(tmp_path: Path) -> None:
    done = run(
        """
        import os, sys, torch, tensorferry as ferry
        ferry.save({"a": torch.ones(3)}, sys.argv[1])
        if (child := os.fork()) == 0:
            ferry.save({"a": torch.ones(5)}, sys.argv[1])
            assert ferry.load(sys.argv[1])["a"].sum() == 5
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(ferry.load(sys.argv[1])["a"].sum())
        """,
        tmp_path / "x",
    )
    assert "tensor(5.)" in done.stdout, done.stderr


def test_paths_that_can_not_be_saved_to_say_why(tmp_path: Path) -> None:
    state = {"a": torch.ones(3)}
    with pytest.raises(ferry.NotFound, match="is no directory; make it first"):
        ferry.save(state, tmp_path / "missing" / "x")
    with pytest.raises(ferry.InvalidInput, match="it is a directory"):
        ferry.save(state, tmp_path)
    for save in (ferry.save, ferry.save_async):
        with pytest.raises(ferry.NotFound):
            save(state, tmp_path / "missing" / "x")
    with pytest.raises(ferry.NotFound):
        ferry.load(tmp_path / "missing")
    with pytest.raises(ferry.InvalidInput, match="it is a directory"):
        ferry.load(tmp_path)
    (tmp_path / "empty").touch()
    with pytest.raises(ferry.Truncated, match="the file is empty"):
        ferry.load(tmp_path / "empty")
    (tmp_path / "text").write_text("this is not a checkpoint, and long enough")
    with pytest.raises(ferry.Unsupported, match="this is a text, not a checkpoint"):
        ferry.load(tmp_path / "text")


def test_links_in_a_circle_are_told_and_stay(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(ferry.InvalidInput, match="its links lead nowhere"):
        ferry.save({"a": torch.ones(3)}, tmp_path / "a")
    assert (tmp_path / "a").is_symlink()


@pytest.mark.parametrize("tool", [*CORE, "torch"])
def test_what_is_saved_over_keeps_its_owner_and_permissions(tool: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    ferry.save({"a": torch.ones(3)}, path)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask()
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 4321, 1234)
    before = path.stat()
    ferry.save({"a": torch.zeros(3)}, path, tool=tool)
    after = path.stat()
    assert after.st_ino != before.st_ino
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )


@pytest.mark.parametrize("tool", [*CORE, "torch"])
def test_a_link_that_is_saved_over_stays_one(tool: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    for value in (1.0, 2.0):
        ferry.save({"a": torch.full((3,), value)}, tmp_path / "link", tool=tool)
        assert (tmp_path / "link").is_symlink()
        assert ferry.load(tmp_path / "file")["a"][0] == value


def umask() -> int:
    os.umask(mask := os.umask(0))
    return mask


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming nobody needs root")
def test_what_can_not_be_made_durable_does_not_replace_the_old_file() -> None:
    with tempfile.TemporaryDirectory() as place:
        done = run(
            """
            import os, sys, torch, tensorferry as ferry
            ferry.save({"a": torch.ones(3)}, f"{sys.argv[1]}/x")
            os.chown(f"{sys.argv[1]}/x", 65534, 65534)
            os.chmod(sys.argv[1], 0o733)
            os.setuid(65534)
            try:
                ferry.save({"a": torch.zeros(3)}, f"{sys.argv[1]}/x")
            except ferry.PermissionDenied as error:
                print(error)
            print(ferry.load(f"{sys.argv[1]}/x")["a"].sum())
            ferry.save({"a": torch.zeros(3)}, f"{sys.argv[1]}/x", durable=False)
            print(ferry.load(f"{sys.argv[1]}/x")["a"].sum())
            """,
            place,
        )
        assert "can't sync the directory" in done.stdout, done.stderr
        assert "tensor(3.)\ntensor(0.)" in done.stdout, done.stderr
        assert os.listdir(place) == ["x"]


def strided() -> dict[str, torch.Tensor]:
    """What Python is asked for while it is saved."""
    return {"a": torch.arange(6.0).reshape(2, 3).t()}


@pytest.mark.parametrize("save", [ferry.save, ferry.save_async])
def test_an_interrupt_in_the_middle_of_a_save_is_an_interrupt(
    save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ferry.save({"old": 1}, tmp_path / "x")
    raised: BaseException = KeyboardInterrupt()

    def materialize(stored: Stored) -> tuple[int, object]:
        raise raised

    monkeypatch.setattr(Stored, "materialize", materialize)
    with pytest.raises(KeyboardInterrupt):
        save(strided(), tmp_path / "x")
    raised = MemoryError("of the device")
    with pytest.raises(ferry.InvalidInput, match="can't copy a tensor to host memory") as caught:
        save(strided(), tmp_path / "x")
    assert caught.value.__cause__ is raised
    assert os.listdir(tmp_path) == ["x"]
    assert ferry.load(tmp_path / "x") == {"old": 1}


@pytest.mark.parametrize("save", [ferry.save, ferry.save_async])
def test_a_handler_that_saves_to_the_path_that_is_being_saved_is_told(
    save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    materialize = Stored.materialize
    told: list[str] = []

    def interrupted(stored: Stored) -> tuple[int, object]:
        # As if a signal came here.
        monkeypatch.setattr(Stored, "materialize", materialize)
        with pytest.raises(ferry.InvalidInput, match="in the middle of a save") as caught:
            ferry.save({"b": 1}, tmp_path / "x")
        told.append(str(caught.value))
        ferry.save({"b": 1}, tmp_path / "y")
        return stored.materialize()

    monkeypatch.setattr(Stored, "materialize", interrupted)
    save(strided(), tmp_path / "x")
    ferry.save({"c": 1}, tmp_path / "z")
    assert len(told) == 1
    ferry.save({"d": 1}, tmp_path / "x")
    assert ferry.load(tmp_path / "x") == {"d": 1}
    assert ferry.load(tmp_path / "y") == {"b": 1}


def test_a_file_that_can_not_be_mapped_to_be_looked_at_is_loaded(tmp_path: Path) -> None:
    ferry.save({"a": torch.ones(3)}, tmp_path / "x")
    done = run(
        """
        import os, resource, sys, tensorferry as ferry
        from tensorferry import _lib
        ferry.load(sys.argv[1])
        pages = int(open("/proc/self/statm").read().split()[0])
        room = pages * os.sysconf("SC_PAGESIZE") + (1 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        os.truncate(sys.argv[2], 1 << 40)
        print(_lib.probe(sys.argv[2])[0])
        """,
        tmp_path / "x",
        touched(tmp_path / "large"),
    )
    assert done.stdout == "False\n", done.stderr


def touched(path: Path) -> Path:
    path.touch()
    return path


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_cached_file_is_known_as_such_on_the_file_system_of_a_container(tmp_path: Path) -> None:
    lower, upper, work, top = (tmp_path / name for name in ("lower", "upper", "work", "top"))
    for directory in (lower, upper, work, top):
        directory.mkdir()
    script = """
import os, sys
from tensorferry import _lib
with open(sys.argv[1], "wb") as file:
    file.write(bytes(100_000))
    os.fsync(file.fileno())
    print(_lib.probe(sys.argv[1])[0])
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    print(_lib.probe(sys.argv[1])[0])
"""
    layers = f"lowerdir={lower},upperdir={upper},workdir={work}"
    mount = f"mount -t overlay overlay -o {layers} {top} || exit 77"
    command = ["unshare", "-m", "sh", "-c", f'{mount}; exec "$@"', "sh"]
    command += [sys.executable, "-c", script, str(top / "file")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)
    if done.returncode == 77:
        pytest.skip(f"no overlay here: {done.stderr}")
    assert done.stdout == "True\nFalse\n", done.stderr


def test_conjugated_and_negated_tensors_go_through_every_tool(tmp_path: Path) -> None:
    tensor = torch.randn(3, dtype=torch.complex64)
    for obj in (tensor.conj(), tensor.conj().imag):
        for tool in (*CORE, "torch", "numpy"):
            ferry.save(obj, tmp_path / tool, tool=tool)
            assert torch.equal(ferry.load(tmp_path / tool), obj.resolve_conj().resolve_neg()), tool


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming nobody needs root")
def test_no_permission_is_told() -> None:
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        done = run(
            """
            import os, sys, torch, tensorferry as ferry
            ferry.save({"a": torch.ones(3)}, f"{sys.argv[1]}/x")
            os.chmod(f"{sys.argv[1]}/x", 0o600)
            os.setuid(65534)
            for path in ("x", "new"):
                try:
                    ferry.save({"a": torch.zeros(3)}, f"{sys.argv[1]}/{path}")
                except ferry.PermissionDenied as error:
                    print(error)
            """,
            place,
        )
        assert "can't save over this file, it is not writable" in done.stdout, done.stderr
        assert "can't save, no file can be made in " in done.stdout, done.stderr
        assert ferry.load(f"{place}/x")["a"].sum() == 3


def test_peak_memory_of_a_large_save_stays_bounded(tmp_path: Path) -> None:
    done = run(
        """
        import resource, sys, torch, tensorferry as ferry
        state = {str(i): torch.ones(16 << 20) for i in range(10)}     # 640 MiB
        ferry.save({"a": torch.ones(3)}, sys.argv[1])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ferry.save(state, sys.argv[1])
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        """,
        tmp_path / "x",
    )
    assert int(done.stdout) < 256 << 10, done.stderr


def test_an_interrupted_wait_leaves_the_save_to_be_finished(tmp_path: Path) -> None:
    done = run(
        """
        import signal, sys, torch, tensorferry as ferry
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        job = ferry.save_async({"a": torch.ones(100_000_000)}, sys.argv[1])
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            job.wait()
        except KeyboardInterrupt:
            print("interrupted")
        """,
        tmp_path / "x",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "interrupted\n"
    assert ferry.load(tmp_path / "x")["a"].eq(1).sum() == 100_000_000


def test_shapes_alone_are_loaded_without_the_data_of_tensors(tmp_path: Path) -> None:
    state = {"t": torch.randn(5), "a": np.arange(3), "b": b"x" * 10_000}
    ferry.save(state, tmp_path / "x")
    meta = ferry.load(tmp_path / "x", map_location="meta")
    assert meta["t"].is_meta
    assert same({key: meta[key] for key in "ab"}, {key: state[key] for key in "ab"})


def test_a_forked_child_does_not_answer_for_its_parents_saves(tmp_path: Path) -> None:
    done = run(
        """
        import os, sys, torch, tensorferry as ferry
        job = ferry.save_async({"a": torch.ones(20_000_000)}, sys.argv[1])
        if (child := os.fork()) == 0:
            ferry.save({"a": torch.ones(5)}, sys.argv[1] + "-child")
            assert ferry.save_async({"a": torch.ones(6)}, sys.argv[1] + "-child").wait().bytes
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        job.wait()
        print("fine")
        """,
        tmp_path / "x",
    )
    assert done.stdout == "fine\n", done.stderr
    assert ferry.load(tmp_path / "x-child")["a"].sum() == 6


def test_devices_and_files_that_make_no_sense_are_errors_of_ours(tmp_path: Path) -> None:
    ferry.save({"a": torch.ones(3)}, tmp_path / "x")
    with pytest.raises(ferry.InvalidInput, match="torch knows no device 'bogus'"):
        ferry.load(tmp_path / "x", map_location="bogus")
    with (tmp_path / "big-endian.npy").open("wb") as file:
        np.save(file, np.arange(4, dtype=">f4"))
    assert ferry.load(tmp_path / "big-endian.npy").tolist() == [0, 1, 2, 3]
    with (tmp_path / "words.npy").open("wb") as file:
        np.save(file, np.array(["a", "b"]))
    with pytest.raises(ferry.Unsupported, match="torch has no such dtype"):
        ferry.load(tmp_path / "words.npy")
    torch.save({"a": torch.ones(1000)}, tmp_path / "cut.pt")
    content = (tmp_path / "cut.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(content[: len(content) // 2])
    with pytest.raises(ferry.Corrupt, match="torch's safe loader can't load the file"):
        ferry.load(tmp_path / "cut.pt")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ferry.InvalidInput, match="it is a pipe"):
        ferry.load(tmp_path / "pipe")


@pytest.mark.parametrize("enabled", [True, False])
def test_a_load_leaves_the_collector_of_cycles_as_it_was(enabled: bool, tmp_path: Path) -> None:
    path = tmp_path / "model"
    ferry.save({"a": torch.ones(3)}, path)
    broken = tmp_path / "broken"
    broken.write_bytes(path.read_bytes()[:-1])
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        ferry.load(path)
        assert gc.isenabled() is enabled
        with pytest.raises(ferry.Error):
            ferry.load(broken)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("tool", ["direct", "buffered", "torch", "numpy"])
def test_a_file_that_may_not_become_so_large_is_told_by_the_systems_number(
    tmp_path: Path, tool: str
) -> None:
    """However a library puts it, also one that says nothing of numbers."""
    script = """
        import errno, resource, sys
        import torch
        import tensorferry as ferry
        resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))
        try:
            ferry.save(torch.ones(4 << 20), "saved", tool=sys.argv[1])
        except ferry.FileTooLarge as error:
            assert error.errno == errno.EFBIG, error.errno
            assert "saved" in str(error), error
        else:
            raise AssertionError("it was saved")
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), tool], cwd=tmp_path, check=True, timeout=120
    )
    assert os.listdir(tmp_path) == []
