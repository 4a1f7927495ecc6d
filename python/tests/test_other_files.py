"""What lies where a checkpoint is expected is loaded, or told as what it is, by every way in."""

from __future__ import annotations

import argparse
import bz2
import contextlib
import gzip
import io
import lzma
import pickle
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import tensorferry as ferry

pytestmark = pytest.mark.filterwarnings("ignore")
"""Torch's, about protocols and TorchScript."""

STATE = {"w": torch.arange(6.0).reshape(2, 3), "step": 3}


def _torch(obj: object, **how: Any) -> bytes:
    file = io.BytesIO()
    torch.save(obj, file, **how)
    return file.getvalue()


def _numpy(save: Callable[..., None], *args: Any, **arrays: Any) -> bytes:
    file = io.BytesIO()
    save(file, *args, **arrays)
    return file.getvalue()


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("readme.txt", "hello")
    return file.getvalue()


def _tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("weights"), io.BytesIO())
    return file.getvalue()


NO_CHECKPOINT = "not a checkpoint or a safetensors file"
LEGACY = {"_use_new_zipfile_serialization": False}

OTHERS: dict[str, tuple[bytes, type[ferry.Error], str]] = {
    "nothing": (b"", ferry.Truncated, "the file is empty"),
    "text": (b"step 1: loss 0.5\n" * 9, ferry.Unsupported, f"this is a text, {NO_CHECKPOINT}"),
    "one letter": (b"x", ferry.Unsupported, "this is a text"),
    "unicode": ("löß".encode() * 2000, ferry.Unsupported, "this is a text"),
    "page": (b"\n<!DOCTYPE html><html>404", ferry.Unsupported, "a web page.*the download"),
    "xml": (b"<?xml version='1.0'?><Error/>", ferry.Unsupported, "a text in XML"),
    "pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        ferry.Unsupported,
        "a pointer of git-lfs.*`git lfs pull`",
    ),
    "gzip": (gzip.compress(b"abc"), ferry.Unsupported, "compressed by gzip.*decompress it first"),
    "xz": (lzma.compress(b"abc"), ferry.Unsupported, "compressed by xz"),
    "bzip2": (bz2.compress(b"abc"), ferry.Unsupported, "compressed by bzip2"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\0", ferry.Unsupported, "compressed by zstd"),
    "tar": (_tar(), ferry.Unsupported, "a tar archive.*unpack it first"),
    "zip": (_zip(), ferry.Unsupported, "a zip archive"),
    "program": (Path(sys.executable).read_bytes()[:9999], ferry.Unsupported, "a program"),
    "gguf": (b"GGUF\3\0\0\0" + bytes(99), ferry.Unsupported, "a GGUF file"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(99), ferry.Unsupported, "a picture"),
    "onnx": (b"\x08\x07\x12\x07pytorch\x1a\x032.1", ferry.Unsupported, "an ONNX model"),
    "utf-16": (("step" * 9).encode("utf-16"), ferry.Unsupported, "a text in UTF-16"),
    "index of pickles": (
        b'\xef\xbb\xbf{"weight_map": {"a": "pytorch_model-00001-of-00001.bin"}}',
        ferry.Unsupported,
        "files of torch.save.*load each of them by ferry.load",
    ),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(99), ferry.Unsupported, "an HDF5 file"),
    "npz": (_numpy(np.savez, a=np.ones(3)), ferry.Unsupported, "NumPy arrays.*numpy.load"),
    "pickle": (pickle.dumps(STATE), ferry.Unsupported, "a pickle.*loading it would run"),
    "json": (b'{"model_type": "x"}', ferry.Corrupt, "is JSON, but no index"),
    "json list": (b'[{"a": 1}]', ferry.Unsupported, "this is a text"),
    "garbage": (Random(3).randbytes(999), ferry.Corrupt, "damaged file, or no checkpoint"),
    "zeros": (bytes(5000), ferry.Corrupt, "a header of 0 bytes is too short"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_of_another_kind_is_told_as_what_it_is_by_every_way_in(
    tmp_path: Path, name: str
) -> None:
    content, kind, words = OTHERS[name]
    path = tmp_path / "model.ferry"
    path.write_bytes(content)
    ways: list[Callable[[], object]] = [
        lambda: ferry.load(path),
        lambda: ferry.load(path, mmap=True, verify=False, keys=["a"]),
        lambda: ferry.load(path, tool="torch"),
        lambda: ferry.load(path, tool="mapped"),
        lambda: ferry.load(path, rank=0, world_size=2),
        lambda: ferry.TensorIO(persist=False).load(path),
        lambda: ferry.safe_open(path),
    ]
    for number, way in enumerate(ways):
        with pytest.raises(kind, match=words) as caught:
            way()
        assert type(caught.value) is kind, number
        assert str(path) in str(caught.value)


def test_what_is_no_file_is_told_as_such(tmp_path: Path) -> None:
    for load in (ferry.load, ferry.safe_open):
        with pytest.raises(ferry.InvalidInput, match="it is a directory"):
            load(tmp_path)
        with pytest.raises(ferry.InvalidInput, match="it is a device"):
            load("/dev/null")
        with pytest.raises(ferry.NotFound, match="can't open file"):
            load(tmp_path / "none")


HEALTHY: dict[str, tuple[bytes, str]] = {
    "module": (_torch(torch.nn.Linear(2, 3)), r"torch\.nn\.modules\.linear\.Linear"),
    "legacy module": (_torch({"m": torch.nn.ReLU()}, **LEGACY), "activation.ReLU"),
    "namespace": (_torch({"args": argparse.Namespace(lr=1)}), r"argparse\.Namespace"),
    "numpy scalar": (_torch({"loss": np.float64(1)}), "numpy.*scalar"),
    "protocol": (_torch(STATE, pickle_protocol=4), "another protocol"),
    "objects": (_numpy(np.save, np.array([{}], object)), "array of Python objects"),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_file_with_more_than_tensors_is_not_called_corrupt(
    tmp_path: Path, name: str
) -> None:
    content, words = HEALTHY[name]
    path = tmp_path / "x.pt"
    path.write_bytes(content)
    for tool in ("auto", "torch", "numpy"):
        with pytest.raises(ferry.Unsupported, match=words) as caught:
            ferry.load(path, tool=tool)
        assert "\n" not in str(caught.value)
        assert "weights_only=False" in str(caught.value) or "module" not in name


def test_a_program_of_torchscript_is_told(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "x")
    with pytest.raises(ferry.Unsupported, match=r"TorchScript; load it with torch\.jit\.load"):
        ferry.load(tmp_path / "x")


@pytest.mark.parametrize("how", [{}, LEGACY], ids=["archive", "legacy"])
def test_a_torch_file_cut_or_changed_anywhere_is_an_error_of_ours_or_loads(
    tmp_path: Path, how: Any
) -> None:
    whole = _torch(STATE, **how)
    random = Random(5)
    for at in sorted(random.sample(range(len(whole)), 150)):
        changed = bytearray(whole)
        changed[at] ^= 1 << random.randrange(8)
        for content in (whole[:at], changed):
            (tmp_path / "x").write_bytes(content)
            with contextlib.suppress(ferry.Corrupt, ferry.Unsupported):
                ferry.load(tmp_path / "x")


def test_a_numpy_file_cut_or_changed_anywhere_is_an_error_of_ours_or_loads(tmp_path: Path) -> None:
    whole = _numpy(np.save, np.arange(5.0))
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        for content in (whole[:at], changed):
            (tmp_path / "x").write_bytes(content)
            for mmap in (False, True):
                with contextlib.suppress(ferry.Corrupt, ferry.Unsupported, ferry.OutOfMemory):
                    ferry.load(tmp_path / "x", mmap=mmap)


def test_what_the_users_own_function_raises_is_no_fault_of_the_file(tmp_path: Path) -> None:
    def place(storage: Any, saved: str) -> Any:
        raise ValueError("mine")

    for tool in ("torch", "direct"):
        ferry.save({"w": torch.ones(2)}, tmp_path / tool, tool=tool)
        with pytest.raises(ValueError, match=r"^mine$"):
            ferry.load(tmp_path / tool, map_location=place)
