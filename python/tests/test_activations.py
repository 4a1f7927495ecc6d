"""The same gradients as without it, bit for bit, in less memory."""

# mypy: disable-error-code="no-untyped-call, unused-ignore, misc, arg-type, operator"

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from rank_cases import run_two_ranks
from torch import nn
from torch.utils.checkpoint import checkpoint

import tensorferry as ferry
from tensorferry._activations.packed import Kept, Packed, Stored

MIB = 1 << 20


def mlp(depth: int = 6, width: int = 256) -> nn.Module:
    torch.manual_seed(0)
    layers = [
        nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.LayerNorm(width)) for _ in range(depth)
    ]
    return nn.Sequential(*layers)


def cnn() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(inplace=True),
        nn.Dropout(0.2),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 16, 10),
    )


def transformer() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.1)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class Cells(nn.Module):
    """Recurrent cells, which work in place on parts of one storage."""

    def __init__(self, kind: type[nn.LSTMCell] | type[nn.GRUCell]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = kind(64, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None
        for part in x.unbind(1):
            state = self.cell(part, state)
        hidden = state[0] if isinstance(state, tuple) else state
        assert isinstance(hidden, torch.Tensor)
        return hidden


def lstm() -> nn.Module:
    return Cells(nn.LSTMCell)


def gru() -> nn.Module:
    return Cells(nn.GRUCell)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (512, 256)),
    "cnn": (cnn, (16, 3, 32, 32)),
    "transformer": (transformer, (16, 32, 64)),
    "lstm": (lstm, (128, 8, 64)),
    "gru": (gru, (128, 8, 64)),
}


def gradients(
    model: nn.Module, x: torch.Tensor, around: object = None, steps: int = 1
) -> list[torch.Tensor]:
    """The gradients after so many steps of plain SGD, and the input's."""
    torch.manual_seed(1)
    x = x.clone().requires_grad_()
    for _ in range(steps):
        model.zero_grad()
        x.grad = None
        if around is None:
            loss = model(x).square().mean()
        else:
            with around:  # type: ignore[attr-defined]
                loss = model(x).square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad  # type: ignore[operator]
    assert x.grad is not None
    return [x.grad, *(p.grad for p in model.parameters() if p.grad is not None)]


def assert_same(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine, other)


def pack(offload: ferry.ActivationOffload, tensor: torch.Tensor) -> Kept | Packed:
    """As autograd does for an operation that saves nothing else."""
    torch.ones(1, requires_grad=True).exp()
    return offload._capture.pack(tensor)


def wait_until_stored(offload: ferry.ActivationOffload) -> None:
    """Has everything leave memory: what fits stays until there is no room for another."""
    report = offload.report()
    room = report.budget - report.staging_bytes
    filler = pack(offload, torch.ones(room // 4))
    assert isinstance(filler, Packed)
    del filler
    while offload.report().used_bytes > 0:
        time.sleep(0.001)


@pytest.fixture
def offload(tmp_path: Path) -> Iterator[ferry.ActivationOffload]:
    offload = ferry.ActivationOffload(tmp_path, "3MiB", min_bytes="16KiB")
    yield offload
    gc.collect()
    assert offload.report().used_bytes == 0


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("compress", ["none", "lossless"])
@pytest.mark.parametrize("planner", ["timeline", "paper"])
def test_gradients_are_the_same_bit_for_bit(
    name: str, compress: str, planner: str, tmp_path: Path
) -> None:
    make, shape = MODELS[name]
    x = torch.randn(shape)
    offload = ferry.ActivationOffload(
        tmp_path,
        "3MiB",
        compress=compress,
        planner=planner,
        min_bytes="16KiB",  # type: ignore[arg-type]
    )
    assert_same(gradients(make(), x, offload, steps=4), gradients(make(), x, steps=4))
    report = offload.report()
    assert report.last is not None
    assert (report.steps, report.last.mode) == (4, "planned")
    assert report.last.peak_bytes <= report.budget == 3 * MIB
    assert report.used_bytes == 0


def test_parts_of_a_storage_that_count_their_changes_by_themselves(
    offload: ferry.ActivationOffload,
) -> None:
    whole = torch.randn(512, 512)
    parts = [part.sigmoid_() for part in whole.unsafe_chunk(2, 1)]
    first, second = whole.unsafe_chunk(2, 1)
    packed_first = pack(offload, first.sigmoid_())
    wait_until_stored(offload)
    packed_second = pack(offload, second.sigmoid_())
    wait_until_stored(offload)
    for packed, part in ((packed_first, first), (packed_second, second)):
        restored = packed.unpack()
        assert torch.equal(restored, part)
        assert restored.stride() == part.stride()
    expanded = parts[0].unsafe_chunk(2, 1)[0][:, :1].expand(512, 64)
    assert torch.equal(pack(offload, expanded).unpack(), expanded)


def test_parameters_and_small_tensors_stay(offload: ferry.ActivationOffload) -> None:
    weight = nn.Parameter(torch.randn(512, 512))
    frozen = nn.Parameter(torch.randn(512, 512), requires_grad=False)
    small = torch.randn(7, 512).exp()
    assert small.nbytes < 16 << 10 < 2 * small.nbytes
    with offload:
        loss = ((small @ weight).exp() @ frozen.t()).exp().sum()
    loss.backward()
    report = offload.report()
    assert report.steps == 0, "nothing was saved that is a step"
    assert report.written_bytes == 0
    with offload:
        ((torch.cat([small, small]) @ weight).exp() @ frozen.t()).exp().sum().backward()
    last = offload.report().last
    assert last is not None
    assert last.saved_bytes == 3 * 2 * small.nbytes, "twice as large, and no parameter"


def test_a_storage_that_is_saved_twice_is_stored_once(offload: ferry.ActivationOffload) -> None:
    x = torch.randn(256, 256, requires_grad=True)
    with offload:
        y = x.exp()
        a, b = y.chunk(2, dim=1)
        loss = (y * y).sum() + (a * b).sum() + y.t().square().sum()
    loss.backward()
    last = offload.report().last
    assert last is not None
    assert last.saved_bytes == 256 * 256 * 4
    wanted = torch.autograd.grad(plain_storage_twice(x), x)[0]
    assert torch.equal(x.grad, wanted)  # type: ignore[arg-type]


def plain_storage_twice(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    a, b = y.chunk(2, dim=1)
    return (y * y).sum() + (a * b).sum() + y.t().square().sum()


def test_while_a_storage_is_away_no_other_is_taken_for_it() -> None:
    storage = torch.randn(4096).untyped_storage()
    address = storage._cdata
    stored = Stored(None, storage, (0, storage.nbytes()), 0, "float32")  # type: ignore[arg-type]
    del storage
    others = [torch.empty(1).untyped_storage() for _ in range(1000)]
    assert address not in {other._cdata for other in others}
    del stored
    others += [torch.empty(1).untyped_storage() for _ in range(1000)]
    assert address in {other._cdata for other in others}, "it comes free with the bytes"


SWAPS = """
import sys, torch, tensorferry as ferry
offload = ferry.ActivationOffload(sys.argv[1], "64MiB", recycle_memory=sys.argv[2] == "yes")

def emptied_and_filled_again(y):
    # As those do who gather a shard's parameters into one buffer, layer by layer.
    storage, size, back = y.untyped_storage(), y.untyped_storage().nbytes(), y.detach().clone()
    storage.resize_(0)
    reuse(y)
    storage.resize_(size)
    y.data.copy_(back)

def emptied(y):
    y.untyped_storage().resize_(0)

def made_larger(y):
    y.untyped_storage().resize_(2 * y.untyped_storage().nbytes())

def put_into_shared_memory(y):
    y.untyped_storage().share_memory_()

def pointed_elsewhere(y):
    y.data = torch.full_like(y, 3.0)

def swapped(y):
    try:
        torch.utils.swap_tensors(y, torch.full_like(y, 3.0))
    except RuntimeError:
        pass  # torch refuses it for what is in a graph

def reuse(y):
    # Freed memory goes to the next who asks for as much.
    for _ in range(4):
        torch.full_like(y, 7.0)

def gradient(swap=None):
    torch.manual_seed(0)
    x = torch.randn(1024, 1024, requires_grad=True)
    with offload:
        y = x.exp()
        loss = y.square().sum()
    if swap is not None:
        swap(y)
        reuse(x)
    loss.backward()
    return x.grad

wanted = gradient()
for swap in (emptied_and_filled_again, emptied, made_larger, put_into_shared_memory,
             pointed_elsewhere, swapped):
    for _ in range(3):
        assert torch.equal(gradient(swap), wanted), swap.__name__
print("same")
"""


@pytest.mark.parametrize("recycle", ["yes", "no"])
def test_a_storage_that_loses_its_bytes_after_they_were_saved(recycle: str, tmp_path: Path) -> None:
    done = run(SWAPS, str(tmp_path), recycle)
    assert done.stdout == "same\n", done.stderr


def test_a_tensor_that_was_set_to_another_storage_is_reported_as_torch_does(
    offload: ferry.ActivationOffload,
) -> None:
    for around in (torch.autograd.set_grad_enabled(True), offload):
        x = torch.randn(256, 256, requires_grad=True)
        with around:  # type: ignore[attr-defined]
            y = x.exp()
        y.detach().set_(torch.ones(256, 256).untyped_storage())
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_a_storage_that_was_filled_anew_is_saved_anew(offload: ferry.ActivationOffload) -> None:
    buffer = torch.full((64, 1024), 1.0)
    size = buffer.untyped_storage().nbytes()
    packed = [pack(offload, buffer)]
    for value in (2.0, 3.0):
        buffer.untyped_storage().resize_(0)
        buffer.untyped_storage().resize_(size)
        buffer.data.fill_(value)
        assert buffer._version == 0
        packed.append(pack(offload, buffer))
    for each, value in zip(packed, (1.0, 2.0, 3.0), strict=True):
        assert torch.equal(each.unpack(), torch.full((64, 1024), value))


def test_bytes_that_are_not_torchs_are_copied(offload: ferry.ActivationOffload) -> None:
    numbers = np.ones((64, 1024), np.float32)
    tensor = torch.from_numpy(numbers)
    packed = pack(offload, tensor)
    # torch lets go of the array, which nobody else has.
    del numbers
    tensor.share_memory_()
    others = [np.full((64, 1024), 7.0, np.float32) for _ in range(4)]
    assert torch.equal(packed.unpack(), torch.ones(64, 1024))
    assert len(others) == 4


def test_a_storage_that_is_shorter_than_its_tensor_is_not_read(
    offload: ferry.ActivationOffload,
) -> None:
    tensor = torch.ones(64, 1024)
    tensor.untyped_storage().resize_(128 << 10)
    assert isinstance(pack(offload, tensor), Kept)


def test_a_parameter_whose_bytes_are_put_in_its_place_for_backward_is_used_as_torch_does(
    offload: ferry.ActivationOffload,
) -> None:
    def gradient(around: object) -> torch.Tensor | None:
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(256, 256))
        whole, x = weight.data, torch.randn(256, 256, requires_grad=True)
        with around:  # type: ignore[attr-defined]
            loss = (x * weight).sum()
        weight.data = torch.empty(0)
        weight.data = whole * 2
        loss.backward()
        return x.grad

    ours, theirs = gradient(offload), gradient(torch.autograd.set_grad_enabled(True))
    assert ours is not None
    assert theirs is not None
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
def test_views_come_back_with_their_strides(
    dtype: torch.dtype, offload: ferry.ActivationOffload
) -> None:
    seen: list[torch.Tensor] = []

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(x.t(), x[::2, 1:], x.expand(3, *x.shape), x[5])
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):  # type: ignore[no-untyped-def]
            seen.extend(ctx.saved_tensors)
            return gradient

    x = torch.randn(300, 200, dtype=dtype, requires_grad=True)
    with offload:
        y = x * 2
        loss = Look.apply(y).abs().sum()
    loss.backward()
    views = [y.t(), y[::2, 1:], y.expand(3, *y.shape), y[5]]
    for view, back in zip(views, seen, strict=True):
        assert back.stride() == view.stride()
        assert torch.equal(back, view)
    seen.clear()


def test_a_change_in_place_is_reported_as_torch_does(offload: ferry.ActivationOffload) -> None:
    def broken(around: object = None) -> None:
        x = torch.randn(200, 200, requires_grad=True)
        if around is None:
            y = x.exp()
        else:
            with around:  # type: ignore[attr-defined]
                y = x.exp()
        y.add_(1)
        y.sum().backward()

    with pytest.raises(RuntimeError, match="modified by an inplace operation") as plain:
        broken()
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as ours:
        broken(offload)
    for text in ("output 0 of ", "is at version 1; expected version 0 instead"):
        assert text in str(plain.value)
        assert text in str(ours.value)
    weight = nn.Parameter(torch.randn(4, 4))
    with offload:
        loss = (torch.randn(4, 4, requires_grad=True) @ weight).sum()
    with torch.no_grad():
        weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_small_part_of_a_large_storage_does_not_hold_all_of_it(
    offload: ferry.ActivationOffload,
) -> None:
    large = torch.randn(64, 1024)
    for part in (large[-1], large[3, ::7], large[:2].t(), large[:1].expand(4, 1024)):
        kept = pack(offload, part)
        assert isinstance(kept, Kept)
        assert kept.tensor.untyped_storage().nbytes() < large.nbytes // 8
        back = kept.unpack()
        assert back.stride() == part.stride()
        assert torch.equal(back, part)
    part = large[-1]
    kept = pack(offload, part)
    part.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.unpack()


def test_a_large_part_of_a_storage_counts_for_what_it_holds(
    offload: ferry.ActivationOffload,
) -> None:
    large = torch.randn(64, 1024)
    storage = large.untyped_storage()
    before = torch._C._storage_Use_Count(storage._cdata)
    packed = [pack(offload, large[8:24]) for _ in range(2)]
    assert torch._C._storage_Use_Count(storage._cdata) == before
    assert isinstance(packed[0], Packed)
    assert isinstance(packed[1], Packed)
    assert packed[0].stored is packed[1].stored
    wait_until_stored(offload)
    assert torch.equal(packed[0].unpack(), large[8:24])


@pytest.mark.parametrize("compress", ["none", "lossless", "half"])
def test_a_storage_that_ends_within_an_element(compress: str, tmp_path: Path) -> None:
    offload = ferry.ActivationOffload(tmp_path, "3MiB", compress=compress, min_bytes="16KiB")
    bytes_ = torch.zeros(400_001, dtype=torch.uint8)
    floats = bytes_[:400_000].view(torch.float32)
    floats[::3] = 0.1
    with offload:
        packed = pack(offload, floats)
    wait_until_stored(offload)
    # It is stored without the rest, so all of it is floats, which may be narrowed.
    wanted = floats.half().float() if compress == "half" else floats
    assert torch.equal(packed.unpack(), wanted)


def test_half_narrows_no_bytes_but_those_of_floats(tmp_path: Path) -> None:
    offload = ferry.ActivationOffload(tmp_path, "3MiB", compress="half", min_bytes="16KiB")
    both = torch.zeros(1 << 18, dtype=torch.uint8)
    floats, numbers = both[: 1 << 17].view(torch.float32), both[1 << 17 :].view(torch.int64)
    floats.fill_(0.1)
    numbers.copy_(torch.arange(numbers.numel()))
    whole = torch.full((1 << 16,), 0.1)
    views = (floats, numbers, whole, whole.view(torch.int32))
    with offload:
        packed = [pack(offload, view) for view in views]
    wait_until_stored(offload)
    back = [each.unpack() for each in packed]
    assert torch.equal(back[1], numbers)
    assert not torch.equal(back[2], whole), "it is narrowed"
    assert torch.equal(back[3], whole.view(torch.int32))


def test_zeros_without_memory_stay(offload: ferry.ActivationOffload) -> None:
    zeros = torch._efficientzerotensor((1 << 20,))
    assert isinstance(pack(offload, zeros), Kept)
    with pytest.raises(ferry.InvalidInput, match="no memory"):
        offload._store.save((0, 4096), False, "nothing", "other", (0, 0))


def test_where_hooks_are_forbidden_the_next_step_works(offload: ferry.ActivationOffload) -> None:
    model, x = mlp(), torch.randn(512, 256)
    with (
        torch.autograd.graph.disable_saved_tensors_hooks("not here"),
        pytest.raises(RuntimeError, match="not here"),
        offload,
    ):
        pass
    gradients(model, x, offload, steps=2)
    last = offload.report().last
    assert last is not None
    assert last.mode == "planned"


def test_autocast(offload: ferry.ActivationOffload) -> None:
    x = torch.randn(512, 256)

    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out: torch.Tensor = self.inner(x)
            return out.float()

    assert_same(gradients(Cast(), x, offload, steps=3), gradients(Cast(), x, steps=3))


def test_casts_of_parameters_stay_and_are_told(offload: ferry.ActivationOffload) -> None:
    model, x = mlp(2), torch.randn(512, 256)
    with offload, torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(x).square().mean()
    loss.backward()
    report = offload.report()
    casts = report.outside["casts of parameters"]
    assert (casts.tensors, casts.bytes) == (1, 256 * 256 * 2), "the first layer needs no gradient"
    assert "not counted: casts of parameters, 1 of 128.0 KiB" in str(report)
    assert offload.profile is not None
    assert "bfloat16[256, 256]" not in offload.profile
    assert "bfloat16[512, 256]" in offload.profile


def test_sparse_tensors_stay_and_are_told(tmp_path: Path) -> None:
    offload = ferry.ActivationOffload(tmp_path, min_bytes="16KiB")
    sparse = torch.eye(8192).to_sparse()
    told: list[contextlib.AbstractContextManager[object]] = [
        pytest.warns(UserWarning, match="layout sparse_coo stay"),
        contextlib.nullcontext(),
    ]
    for once in told:
        x = torch.randn(8192, 4, requires_grad=True)
        with offload, once:
            loss = torch.sparse.mm(sparse, x).sum()
        loss.backward()
    assert offload.report().outside["tensors of layout sparse_coo"].tensors == 1


def test_dtensors_stay_and_are_told(tmp_path: Path) -> None:
    script = f"""
import warnings, torch, tensorferry as ferry
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
dist.init_process_group("gloo", init_method="file://{tmp_path}/meet", rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
offload = ferry.ActivationOffload({str(tmp_path)!r}, min_bytes="16KiB")
def gradient(around):
    torch.manual_seed(0)
    x = distribute_tensor(torch.randn(256, 256), mesh, [Shard(0)]).requires_grad_()
    with around:
        loss = x.exp().square().sum()
    loss.backward()
    return x.grad.to_local()
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    ours = gradient(offload)
assert torch.equal(ours, gradient(torch.autograd.set_grad_enabled(True)))
assert any("DTensors stay in memory" in str(each.message) for each in told), told
kinds = offload.report().outside
assert kinds["DTensors"].bytes == kinds["DTensors"].tensors * 256 * 256 * 4 > 0, kinds
dist.destroy_process_group()
print("told")
"""
    done = run(script)
    assert done.stdout == "told\n", done.stderr


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_inside(reentrant: bool, offload: ferry.ActivationOffload) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = mlp(2), mlp(2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = checkpoint(self.a, x, use_reentrant=reentrant)
            out: torch.Tensor = self.b(y)
            return out

    x = torch.randn(512, 256)
    assert_same(
        gradients(Checkpointed(), x, offload, steps=3), gradients(Checkpointed(), x, steps=3)
    )


def test_backward_inside_and_nested_contexts(
    offload: ferry.ActivationOffload, tmp_path: Path
) -> None:
    inner = ferry.ActivationOffload(tmp_path, "4MiB", min_bytes="16KiB")
    model, x = mlp(), torch.randn(512, 256, requires_grad=True)
    for _ in range(3):
        with offload:
            y = model[:3](x)  # type: ignore[index]
            with inner:
                y = model[3:](y)  # type: ignore[index]
            y.square().mean().backward()
    wanted = torch.autograd.grad(model(x).square().mean(), x)[0]
    assert torch.equal(x.grad, wanted + wanted + wanted)  # type: ignore[arg-type]
    assert inner.report().steps == 3
    x.grad = None
    with offload, inner:
        model(x).square().mean().backward()
    assert torch.equal(x.grad, wanted)  # type: ignore[arg-type]


def test_accumulation_and_several_forwards_before_one_backward(
    offload: ferry.ActivationOffload,
) -> None:
    parts = [torch.randn(256, 256) for _ in range(3)]

    def accumulated(around: object) -> list[torch.Tensor]:
        model = mlp()
        for part in parts:
            with around:  # type: ignore[attr-defined]
                loss = model(part).square().mean()
            loss.backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    def together(around: object) -> list[torch.Tensor]:
        model = mlp()
        losses = []
        for part in parts:
            with around:  # type: ignore[attr-defined]
                losses.append(model(part).square().mean())
        sum(losses).backward()  # type: ignore[union-attr]
        return [p.grad for p in model.parameters() if p.grad is not None]

    nothing = torch.autograd.set_grad_enabled(True)
    for way in (accumulated, together):
        for _ in range(3):
            assert_same(way(offload), way(nothing))


def test_retain_graph_and_two_backwards(offload: ferry.ActivationOffload) -> None:
    model, x = mlp(), torch.randn(512, 256, requires_grad=True)
    with offload:
        loss = model(x).square().mean()
    first = torch.autograd.grad(loss, x, retain_graph=True)[0]
    second = torch.autograd.grad(loss, x)[0]
    wanted = torch.autograd.grad(model(x).square().mean(), x)[0]
    assert torch.equal(first, wanted)
    assert torch.equal(second, wanted)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, x)


def test_double_backward(tmp_path: Path) -> None:
    offload = ferry.ActivationOffload(tmp_path, "64MiB", min_bytes="16KiB")
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())

    def penalty(around: object) -> torch.Tensor:
        torch.manual_seed(3)
        x = torch.randn(128, 64, requires_grad=True)
        with around:  # type: ignore[attr-defined]
            y = model(x).sum()
        gradient = torch.autograd.grad(y, x, create_graph=True)[0]
        return torch.autograd.grad(gradient.square().sum(), x)[0]

    assert torch.equal(penalty(offload), penalty(torch.autograd.set_grad_enabled(True)))


def test_a_graph_without_backward_leaves_nothing(offload: ferry.ActivationOffload) -> None:
    model, x = mlp(), torch.randn(512, 256)
    for _ in range(3):
        with offload:
            loss = model(x).square().mean()
        del loss
    for _ in range(100):
        report = offload.report()
        if report.used_bytes == report.scratch_bytes == 0:
            break
        threading.Event().wait(0.02)
    assert (report.used_bytes, report.scratch_bytes, report.steps) == (0, 0, 0)


def test_evaluation_costs_nothing(offload: ferry.ActivationOffload) -> None:
    model, x = mlp(), torch.randn(512, 256)
    with torch.no_grad(), offload:
        model(x)
    report = offload.report()
    assert (report.steps, report.written_bytes) == (0, 0)


def test_an_exception_in_the_middle_of_a_step(offload: ferry.ActivationOffload) -> None:
    model, x = mlp(), torch.randn(512, 256)
    gradients(model, x, offload, steps=2)
    with pytest.raises(ZeroDivisionError), offload:
        model(x)[0].sum() / (1 // 0)
    gc.collect()
    assert_same(gradients(mlp(), x, offload, steps=3), gradients(mlp(), x, steps=3))


def test_an_exception_in_the_middle_of_backward(offload: ferry.ActivationOffload) -> None:
    model, x = mlp(), torch.randn(512, 256)
    gradients(model, x, offload, steps=2)

    def fail(gradient: torch.Tensor) -> None:
        raise ZeroDivisionError

    with offload:
        middle = model[:3](x)  # type: ignore[index]
        middle.register_hook(fail)
        loss = model[3:](middle).square().mean()  # type: ignore[index]
    with pytest.raises(ZeroDivisionError):
        loss.backward()
    del loss, middle
    gc.collect()
    assert_same(gradients(mlp(), x, offload, steps=3), gradients(mlp(), x, steps=3))


def test_one_context_around_many_steps(offload: ferry.ActivationOffload) -> None:
    model, x = mlp(), torch.randn(512, 256, requires_grad=True)
    with offload:
        for step in range(1, 5):
            x.grad = None
            model(x).square().mean().backward()
            report = offload.report()
            assert report.steps == step
    assert report.last is not None
    assert report.last.mode == "planned"
    assert_same([x.grad], list(torch.autograd.grad(model(x).square().mean(), x)))  # type: ignore[list-item]


def test_threads_other_than_the_main_one(tmp_path: Path) -> None:
    # Less than the 12 MiB that they save together.
    offload = ferry.ActivationOffload(tmp_path, "5MiB", min_bytes="16KiB")
    x = torch.randn(256, 256)
    wanted = gradients(mlp(), x, steps=3)
    wrong: list[BaseException] = []

    def train(model: nn.Module) -> None:
        try:
            y = x.clone().requires_grad_()
            for _ in range(3):
                model.zero_grad()
                y.grad = None
                with offload:
                    loss = model(y).square().mean()
                loss.backward()
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter -= 0.1 * parameter.grad  # type: ignore[operator]
            assert_same([y.grad, *(p.grad for p in model.parameters())], wanted)  # type: ignore[list-item]
        except BaseException as error:
            wrong.append(error)

    # Made here: torch's seed is everybody's.
    threads = [threading.Thread(target=train, args=(mlp(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    assert offload.report().used_bytes == 0


def test_a_step_that_differs(offload: ferry.ActivationOffload) -> None:
    for rows in (512, 512, 300, 512, 512, 512, 700):
        x = torch.randn(rows, 256)
        assert_same(gradients(mlp(), x, offload), gradients(mlp(), x))
    last = offload.report().last
    assert last is not None
    assert last.mode == "profiled"


def test_the_plan_says_why(offload: ferry.ActivationOffload) -> None:
    assert offload.plan is None
    assert offload.profile is None
    gradients(mlp(), torch.randn(512, 256), offload, steps=2)
    plan = offload.plan
    assert plan is not None
    told = plan.explain()
    assert "Relu float32[512, 256]" in told
    assert plan.to_dict()["budget"] < 3 * MIB
    assert "are kept" in repr(plan)
    assert offload.profile is not None
    text = str(offload.report())
    for word in ("budget 3.0 MiB", "predicted", "drive writes a day"):
        assert word in text


def test_half_is_near_and_says_so(tmp_path: Path) -> None:
    offload = ferry.ActivationOffload(tmp_path, "3MiB", compress="half", min_bytes="16KiB")
    x = torch.randn(512, 256)

    def model() -> nn.Module:
        # A loss right after a LayerNorm hardly has gradients: rounding would be most of them.
        return nn.Sequential(mlp(), nn.Linear(256, 8))

    ours, theirs = gradients(model(), x, offload), gradients(model(), x)
    assert not all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine - other).abs().max() < 0.002 * other.abs().max()
    last = offload.report().last
    assert last is not None
    assert last.stored_bytes <= last.offloaded_bytes * 0.55


def test_several_directories(tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    for directory in directories:
        directory.mkdir()
    offload = ferry.ActivationOffload(directories, "3MiB", min_bytes="16KiB")
    x = torch.randn(512, 256)
    assert_same(gradients(mlp(), x, offload, steps=3), gradients(mlp(), x, steps=3))
    report = offload.report()
    assert report.drive_bytes == shutil.disk_usage(tmp_path).total, "one drive"
    assert report.drive_writes_per_day > 0
    files = {os.stat(link).st_ino: link for link in scratch_files(tmp_path)}
    assert len(files) == 2
    for link in files.values():
        with open(link, "rb") as file:
            assert any(file.read(MIB)), "both were written"


def test_scratch_files_go_around_the_page_cache(tmp_path: Path) -> None:
    try:
        os.close(os.open(tmp_path / "probe", os.O_RDWR | os.O_CREAT | os.O_DIRECT))
    except OSError:
        pytest.skip("this file system has no direct I/O")
    offload = ferry.ActivationOffload(tmp_path, "3MiB", min_bytes="16KiB")
    gradients(mlp(), torch.randn(512, 256), offload)
    numbers = [link.name for link in scratch_files(tmp_path)]
    told = [Path("/proc/self/fdinfo", number).read_text() for number in numbers]
    flags = [int(text.split("flags:")[1].split()[0], 8) for text in told]
    assert any(each & os.O_DIRECT for each in flags)


def scratch_files(directory: Path) -> list[Path]:
    """The descriptors of nameless files that this process has open under a directory."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(link).startswith(f"{directory}/"):
                found.append(link)
    return found


def test_tmpfs_works() -> None:
    offload = ferry.ActivationOffload("/dev/shm", "3MiB", min_bytes="16KiB")
    x = torch.randn(512, 256)
    assert_same(gradients(mlp(), x, offload, steps=3), gradients(mlp(), x, steps=3))


# -- faults --


def test_bad_arguments_are_told(tmp_path: Path) -> None:
    with pytest.raises(ferry.NotFound, match="nowhere"):
        ferry.ActivationOffload(tmp_path / "nowhere")
    with pytest.raises(ferry.InvalidInput, match="choose none, lossless or half"):
        ferry.ActivationOffload(tmp_path, compress="zip")  # type: ignore[arg-type]
    with pytest.raises(ferry.InvalidInput, match="is no planner"):
        ferry.ActivationOffload(tmp_path, planner="best")  # type: ignore[arg-type]
    with pytest.raises(ferry.InvalidInput, match="too small"):
        ferry.ActivationOffload(tmp_path, 1000)
    (tmp_path / "file").write_text("")
    with pytest.raises(ferry.Error, match="file"):
        ferry.ActivationOffload(tmp_path / "file")


def stated_minimum(error: ferry.Error) -> int:
    """The least budget that an error states."""
    found = re.search(r"give at least (\d+) MiB", str(error))
    assert found is not None, error
    return int(found[1]) * MIB


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("compress", ["lossless", "half"])
def test_the_budget_that_an_error_states_is_enough_and_the_least(
    name: str, compress: str, tmp_path: Path
) -> None:
    make, shape = MODELS[name]
    x = torch.randn((32 if name in ("lstm", "gru") else 8) * shape[0], *shape[1:])

    def train(budget: int) -> None:
        offload = ferry.ActivationOffload(
            tmp_path,
            budget,
            compress=compress,  # type: ignore[arg-type]
            min_bytes="16KiB",
        )
        gradients(make(), x, offload, steps=3)

    with pytest.raises(ferry.OutOfMemory, match=r"and uses at once|one tensor of") as error:
        train(MIB)
    least = stated_minimum(error.value)
    train(least)
    with pytest.raises(ferry.OutOfMemory) as error:
        train(least - MIB)
    assert stated_minimum(error.value) == least


class Many(torch.autograd.Function):
    """One operation that saves many tensors and uses all of them at once."""

    @staticmethod
    def forward(ctx, x, *tensors):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(*tensors)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        total = sum(tensor.sum() for tensor in ctx.saved_tensors)
        return gradient * total, *(None for _ in ctx.saved_tensors)


def test_an_operation_that_saves_more_than_the_budget_is_refused_and_never_waited_for(
    tmp_path: Path,
) -> None:
    sizes = [1, 4, 2, 3, 1, 4, 2, 3, 1, 4, 2, 3]
    x = torch.ones(4, requires_grad=True)

    def train(budget: int) -> None:
        x.grad = None
        offload = ferry.ActivationOffload(tmp_path, budget)
        with offload:
            tensors = [torch.full((size, 1 << 18), float(size)) for size in sizes]
            loss = Many.apply(x, *tensors).sum()
        del tensors
        loss.backward()

    with pytest.raises(ferry.OutOfMemory, match="12 tensors of 30 MiB that one operation") as error:
        train(16 * MIB)
    train(stated_minimum(error.value))
    wanted = sum(size * size * (1 << 18) for size in sizes)
    assert torch.equal(x.grad, torch.full((4,), float(wanted)))  # type: ignore[arg-type]


def test_tensors_that_the_caller_keeps_are_told_with_a_budget_for_all(tmp_path: Path) -> None:
    def keep_all(budget: int) -> None:
        offload = ferry.ActivationOffload(tmp_path, budget)
        tensors = [torch.ones(1 << 18) for _ in range(12)]
        with offload:
            packed = []
            for tensor in tensors:
                packed.append(pack(offload, tensor))
        held = [each.unpack() for each in packed]
        assert all(torch.equal(tensor, tensors[0]) for tensor in held)

    with pytest.raises(ferry.OutOfMemory, match="let go of saved tensors that you keep") as error:
        keep_all(8 * MIB)
    found = re.search(r"or give (\d+) MiB", str(error.value))
    assert found is not None
    keep_all(int(found[1]) * MIB)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_model_is_one_operation(backend: str, tmp_path: Path) -> None:
    x = torch.randn(512, 256)

    def train(around: object) -> list[torch.Tensor]:
        torch._dynamo.reset()
        model = mlp(3)
        torch.manual_seed(1)
        compiled = torch.compile(model, backend=backend)
        for _ in range(3):
            model.zero_grad()
            with around:  # type: ignore[attr-defined]
                loss = compiled(x).square().mean()
            loss.backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    wanted = train(torch.autograd.set_grad_enabled(True))
    offload = ferry.ActivationOffload(tmp_path, "2MiB", min_bytes="16KiB")
    with pytest.raises(ferry.OutOfMemory, match="compile its parts") as error:
        train(offload)
    enough = ferry.ActivationOffload(tmp_path, stated_minimum(error.value), min_bytes="16KiB")
    assert_same(train(enough), wanted)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_a_model_whose_parts_are_compiled_is_offloaded(tmp_path: Path) -> None:
    x = torch.randn(512, 256)

    def train(around: object) -> list[torch.Tensor]:
        torch._dynamo.reset()
        model = mlp()
        parts = [torch.compile(part, backend="aot_eager") for part in model.children()]
        torch.manual_seed(1)
        for _ in range(3):
            model.zero_grad()
            with around:  # type: ignore[attr-defined]
                y = x
                for part in parts:
                    y = part(y)
                loss = y.square().mean()
            loss.backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    offload = ferry.ActivationOffload(tmp_path, "4MiB", min_bytes="16KiB")
    assert_same(train(offload), train(torch.autograd.set_grad_enabled(True)))
    assert offload.report().written_bytes > 0


# -- shapes --


@pytest.mark.parametrize("rows", [[512, 256], [512, 256, 384, 128], [512] * 9 + [100]])
def test_shapes_that_take_turns_and_fit_write_nothing(rows: list[int], tmp_path: Path) -> None:
    offload = ferry.ActivationOffload(tmp_path, "64MiB", min_bytes="16KiB")
    model, plain = mlp(), mlp()
    for step in range(40):
        x = torch.randn(rows[step % len(rows)], 256)
        assert_same(gradients(model, x, offload), gradients(plain, x))
    report = offload.report()
    assert report.written_bytes == 0
    assert report.last is not None
    assert report.last.mode == "planned"


def test_shapes_that_take_turns_are_planned_for(offload: ferry.ActivationOffload) -> None:
    model, plain = mlp(), mlp()
    modes = []
    for step in range(12):
        x = torch.randn((512, 700, 600)[step % 3], 256)
        assert_same(gradients(model, x, offload), gradients(plain, x))
        last = offload.report().last
        assert last is not None
        assert last.peak_bytes <= 3 * MIB
        modes.append(last.mode)
    assert modes[-3:] == ["planned"] * 3


def flip_a_bit(directory: Path) -> None:
    """In the scratch file that was made in ``directory`` and has no name any more."""
    with open(scratch_files(directory)[0], "r+b", buffering=0) as file:
        file.seek(1000)
        byte = file.read(1)
        file.seek(1000)
        file.write(bytes([byte[0] ^ 1]))
        os.fsync(file.fileno())


def test_a_flipped_bit_never_becomes_a_gradient(tmp_path: Path) -> None:
    offload = ferry.ActivationOffload(tmp_path, "2MiB", compress="none", min_bytes="16KiB")
    model, x = mlp(), torch.randn(512, 256)
    with offload:
        loss = model(x).square().mean()
    flip_a_bit(tmp_path)
    with pytest.raises(ferry.Corrupt, match=r"activation 0: .*float32\[512, 256\]"):
        loss.backward()
    del loss
    assert_same(gradients(mlp(), x, offload, steps=2), gradients(mlp(), x, steps=2))


def test_what_can_not_be_read_back_is_an_error_that_names_it_and_the_next_step_works(
    tmp_path: Path,
) -> None:
    offload = ferry.ActivationOffload(tmp_path, "2MiB", compress="none", min_bytes="16KiB")
    model, x = mlp(), torch.randn(512, 256)
    with offload:
        loss = model(x).square().mean()
    wait_until_stored(offload)
    for file in scratch_files(tmp_path):
        os.truncate(file, 0)
    with pytest.raises(ferry.Error, match=r"activation \d+: .*float32\[512, 256\]"):
        loss.backward()
    del loss
    assert_same(gradients(mlp(), x, offload, steps=3), gradients(mlp(), x, steps=3))


def test_steps_that_save_the_same_batch_as_one_that_failed_work_again(tmp_path: Path) -> None:
    """The loop that everybody writes: the loss of the failed step lives until the next one is
    there. It held the budget, and whatever saved the same tensor raised its error for ever."""
    offload = ferry.ActivationOffload(tmp_path, "2MiB", compress="none", min_bytes="16KiB")
    model, x = mlp(), torch.randn(512, 256)
    with offload:
        loss = model(x).square().mean()
    wait_until_stored(offload)
    flip_a_bit(tmp_path)
    with pytest.raises(ferry.Corrupt):
        loss.backward()
    for _ in range(3):
        model.zero_grad()
        with offload:
            loss = model(x).square().mean()
        loss.backward()
    grads = [parameter.grad for parameter in model.parameters()]
    plain = mlp()
    plain(x).square().mean().backward()
    assert all(map(torch.equal, grads, [parameter.grad for parameter in plain.parameters()]))


@pytest.mark.parametrize(
    ("how", "budget"),
    # Compiled autograd holds all that it has taken back until the end.
    [("the step is compiled", "4MiB"), ("autograd is compiled", "8MiB")],
)
def test_no_compiler_looks_into_the_offload(how: str, budget: str, tmp_path: Path) -> None:
    done = run(f"""
import torch, torch._dynamo, tensorferry as ferry
torch.manual_seed(0)
net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU())] * 4)
x = torch.randn(2048, 64)
weights = list(net.parameters())
wanted = torch.autograd.grad(net(x).square().mean(), weights)
offload = ferry.ActivationOffload({str(tmp_path)!r}, {budget!r}, min_bytes="16KiB")
def forward(x):
    with offload:
        return net(x).square().mean()
if {how!r} == "the step is compiled":
    step = torch.compile(forward, backend="aot_eager")
    for _ in range(2):
        step(x).backward()
        assert all(map(torch.allclose, [weight.grad for weight in weights], wanted))
        net.zero_grad()
else:
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
        forward(x).backward()
    assert all(map(torch.allclose, [weight.grad for weight in weights], wanted))
assert offload.report().last.saved_bytes > 0
""")
    assert done.returncode == 0, done.stderr


def io_bytes(op: str) -> dict[str, int]:
    """Bytes that this process has moved, by priority."""
    return {
        series["labels"]["priority"]: series["value"]
        for series in ferry.metrics()
        if series["name"] == "ferry_io_bytes_total" and series["labels"]["op"] == op
    }


def test_the_disk_is_shared_with_the_other_paths_by_priority(tmp_path: Path) -> None:
    offload = ferry.ActivationOffload(tmp_path, "2MiB", compress="none", min_bytes="16KiB")
    before = {op: io_bytes(op) for op in ("write", "read")}
    with offload:
        loss = mlp()(torch.randn(512, 256)).square().mean()
    # What backward uses before it has left is written in part, and not stored.
    wait_until_stored(offload)
    ferry.save({"weight": torch.ones(1000)}, tmp_path / "model")
    loss.backward()

    def moved(op: str) -> dict[str, int]:
        return {urgency: bytes_ - before[op][urgency] for urgency, bytes_ in io_bytes(op).items()}

    last = offload.report().last
    assert last is not None
    written, read = moved("write"), moved("read")
    assert written["offload"] == last.stored_bytes > 0, "what makes room comes after reads"
    assert written["waiting"] >= 4000, "a save that somebody waits for does not, on the same engine"
    assert read["waiting"] + read["prefetch"] == last.read_bytes > 0
    assert written["background"] == read["background"] == read["offload"] == 0


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_full_disk_is_an_error_in_the_step_and_the_next_one_works(tmp_path: Path) -> None:
    script = f"""
import resource, signal, torch, tensorferry as ferry
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
offload = ferry.ActivationOffload({str(tmp_path)!r}, "3MiB", compress="none", min_bytes="16KiB")
x = torch.randn(512, 1024, requires_grad=True)
def step():
    with offload:
        y = x
        for _ in range(6):
            y = y.exp().neg()
        loss = y.sum()
    loss.backward()
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
try:
    step()
except ferry.Error as error:
    print(type(error).__name__, error)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
step(); step()
print("works")
"""
    done = run(script)
    assert done.returncode == 0, done.stderr
    assert "FileTooLarge" in done.stdout or "OutOfSpace" in done.stdout, done.stdout
    assert re.search(r"activation \d+: ", done.stdout), done.stdout
    assert done.stdout.endswith("works\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming nobody needs root")
def test_a_directory_that_is_not_writable_is_told_at_once() -> None:
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        done = run(f"""
import os, torch, tensorferry as ferry
import tensorferry._activations.capture  # nobody may not read every library
os.setuid(65534)
try:
    ferry.ActivationOffload({place!r})
except ferry.PermissionDenied as error:
    print(error)
""")
        assert place in done.stdout, done.stderr


def test_the_example_trains_a_batch_that_does_not_fit(tmp_path: Path) -> None:
    example = Path(__file__).resolve().parents[2] / "examples/train_a_larger_batch.py"
    command = [sys.executable, example, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The batch that did not fit was trained." in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_kill_leaves_no_file(tmp_path: Path) -> None:
    script = f"""
import os, signal, torch, tensorferry as ferry
offload = ferry.ActivationOffload({str(tmp_path)!r}, "3MiB", min_bytes="16KiB")
x = torch.randn(512, 1024, requires_grad=True)
with offload:
    loss = x.exp().exp().exp().sum()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run(script).returncode == -9
    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_is_told_and_the_parent_goes_on(tmp_path: Path) -> None:
    script = f"""
import os, torch, tensorferry as ferry
torch.set_num_threads(1)
offload = ferry.ActivationOffload({str(tmp_path)!r}, "3MiB", min_bytes="16KiB")
x = torch.randn(512, 512, requires_grad=True)
with offload:
    loss = x.exp().sum()
pid = os.fork()
if pid == 0:
    try:
        with offload:
            pass
    except ferry.Unsupported as error:
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
loss.backward()
print("fine")
"""
    done = run(script)
    assert done.stdout == "fine\n", done.stderr


def test_two_ranks_of_ddp(tmp_path: Path) -> None:
    script = f"""
import os, sys, torch, tensorferry as ferry
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://{tmp_path}/meet", rank=rank, world_size=2)
torch.set_num_threads(1)
def train(around):
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(5)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    torch.manual_seed(rank)
    for _ in range(3):
        x = torch.randn(256, 256)
        model.zero_grad()
        with around:
            loss = model(x).square().mean()
        loss.backward()
    return [p.grad for p in model.parameters()]
offload = ferry.ActivationOffload({str(tmp_path)!r}, "2MiB", min_bytes="16KiB")
ours, theirs = train(offload), train(torch.autograd.set_grad_enabled(True))
assert all(torch.equal(a, b) for a, b in zip(ours, theirs))
assert offload.report().last.mode == "planned"
dist.destroy_process_group()
print("same")
"""
    run_two_ranks(script)
