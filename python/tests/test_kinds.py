"""Tensors that are not memory, at every door that takes an address."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.masked import masked_tensor
from torch.testing._internal.two_tensor import TwoTensor

import tensorferry as ferry
from tensorferry import _kinds, _lib
from tensorferry._data import calls


class Wrapper(torch.Tensor):
    """Looks like a tensor of host memory, and has none."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        assert isinstance(made, cls)
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, *_: Any, **__: Any) -> Any:  # type: ignore[override]
        raise NotImplementedError(str(function))


class Noted(torch.Tensor):
    """Has a name of its own, and nothing else."""


class NotedParameter(nn.Parameter):
    """The same, of a parameter."""


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(4)


def escaped(transform: Callable[..., Any], *shape: int) -> torch.Tensor:
    """A tensor that a transform of torch.func had in its hands."""
    seen = []

    def function(tensor: torch.Tensor) -> torch.Tensor:
        seen.append(tensor)
        return tensor.sum()

    transform(function)(torch.ones(shape))
    return seen[0]


def two() -> torch.Tensor:
    made: torch.Tensor = TwoTensor(torch.ones(4), torch.ones(4))  # type: ignore[no-untyped-call]
    return made


def freed(nbytes: int) -> torch.Tensor:
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(nbytes)
    return tensor


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # Some kinds are in beta.

PENDING: dict[str, Callable[[], torch.Tensor]] = {
    "a lazily conjugated tensor": lambda: torch.ones(4, dtype=torch.complex64).conj(),
    "a lazily negated tensor": lambda: torch._neg_view(torch.ones(4)),
}

KINDS: list[tuple[str, Callable[[], torch.Tensor]]] = [
    ("a FakeTensor", fake),
    ("a FakeTensor", lambda: nn.Parameter(fake())),
    ("a tensor on the meta device", lambda: torch.ones(4, device="meta")),
    ("a tensor of layout sparse_coo", lambda: torch.eye(3).to_sparse()),
    ("a tensor of layout sparse_csr", lambda: torch.eye(3).to_sparse_csr()),
    ("a tensor of layout sparse_bsc", lambda: torch.eye(4).to_sparse_bsc((2, 2))),
    ("a tensor of layout _mkldnn", lambda: torch.eye(3).to_mkldnn()),
    (
        "a quantized tensor",
        lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8),
    ),
    ("a nested tensor", lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])),
    (
        "a nested tensor",
        lambda: torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
    ),
    ("a lazy module's parameter", nn.UninitializedParameter),
    ("a lazy module's parameter", nn.parameter.UninitializedBuffer),
    ("a tensor inside of a torch.func transform", lambda: escaped(torch.func.grad, 4)),
    ("a tensor inside of a torch.func transform", lambda: escaped(torch.func.vmap, 4, 4)),
    ("a functional tensor", lambda: torch._to_functional_tensor(torch.ones(4))),
    ("a tensor of zeros without memory", lambda: torch._efficientzerotensor(4)),
    ("a tensor whose memory was given back", lambda: freed(0)),
    ("a tensor whose memory was given back", lambda: freed(8)),
    ("a MaskedTensor", lambda: masked_tensor(torch.ones(4), torch.ones(4) > 0)),
    ("a TwoTensor", lambda: two()),
    ("a TwoTensor", lambda: nn.Parameter(two())),
    ("a Wrapper", lambda: Wrapper(torch.ones(4))),
]


@pytest.fixture(scope="module")
def dtensor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DTensor]:
    store = torch._C._distributed_c10d.FileStore(str(tmp_path_factory.mktemp("group") / "store"), 1)
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    try:
        yield DTensor.from_local(torch.ones(4), init_device_mesh("cpu", (1,)), [Shard(0)])
    finally:
        torch.distributed.destroy_process_group()


def save(tensor: torch.Tensor, path: Path) -> None:
    ferry.save({"model": {"weight": tensor}}, path)


def save_async(tensor: torch.Tensor, path: Path) -> None:
    ferry.save_async({"model": {"weight": tensor}}, path).wait()


def save_by_any_tool(tensor: torch.Tensor, path: Path) -> None:
    ferry.TensorIO(persist=False).save({"model": {"weight": tensor}}, path)


def write(tensor: torch.Tensor, path: Path) -> None:
    with ferry.Engine() as engine:
        engine.open(path, "w").write(tensor).wait()


def read(tensor: torch.Tensor, path: Path) -> None:
    path.write_bytes(bytes(64))
    with ferry.Engine() as engine:
        engine.open(path, "r").read(into=tensor).wait()


DOORS = [save, save_async, save_by_any_tool, write, read]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("kind", "make"), KINDS)
def test_every_door_refuses_what_has_no_memory_and_says_what_it_is(
    door: Callable[[torch.Tensor, Path], None],
    kind: str,
    make: Callable[[], torch.Tensor],
    tmp_path: Path,
) -> None:
    tensor = make()
    assert not _kinds.is_plain(tensor)
    with pytest.raises(ferry.InvalidInput) as caught:
        door(tensor, tmp_path / "x")
    assert kind in str(caught.value)
    assert str(_kinds.obstacle(tensor)) in str(caught.value)
    if "save" in door.__name__:
        assert str(caught.value).startswith("can't save model.weight: ")
        assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses_a_dtensor_and_names_both_ways_out(
    door: Callable[[torch.Tensor, Path], None], dtensor: DTensor, tmp_path: Path
) -> None:
    for tensor in (dtensor, nn.Parameter(dtensor)):
        with pytest.raises(ferry.InvalidInput, match=r"a DTensor.*to_local\(\).*full_tensor\(\)"):
            door(tensor, tmp_path / "x")


@pytest.mark.parametrize(("kind", "make"), KINDS)
def test_a_transform_that_gives_what_has_no_memory_is_told(
    kind: str, make: Callable[[], torch.Tensor]
) -> None:
    made = make()
    with pytest.raises(ferry.InvalidInput, match=f"the function gave {kind}"):
        calls.call(lambda _: made, "F32", [1], bytearray(4))


@pytest.mark.parametrize("kind", PENDING)
def test_a_transform_may_leave_operations_pending(kind: str) -> None:
    made = PENDING[kind]()
    _, shape, content = calls.call(lambda _: made, "F32", [1], bytearray(4))
    assert content == made.resolve_conj().resolve_neg().numpy().tobytes()
    assert shape == [4]


TRAINED: list[tuple[str, Callable[[], torch.Tensor]]] = [
    ("a FakeTensor", lambda: nn.Parameter(fake())),
    ("a tensor on the meta device", lambda: nn.Parameter(torch.ones(4, device="meta"))),
    ("a tensor of layout sparse_coo", lambda: nn.Parameter(torch.eye(3).to_sparse())),
    ("a functional tensor", lambda: torch._to_functional_tensor(torch.ones(4)).requires_grad_()),
    ("a tensor whose memory was given back", lambda: nn.Parameter(freed(0))),
    ("a tensor whose memory was given back", lambda: nn.Parameter(freed(8))),
    ("a TwoTensor", lambda: nn.Parameter(two())),
    ("a Wrapper", lambda: Wrapper(torch.ones(4)).requires_grad_()),
    ("a lazily negated tensor", lambda: nn.Parameter(torch._neg_view(torch.ones(4)))),
]


@pytest.mark.parametrize(("kind", "make"), TRAINED)
def test_an_optimizer_refuses_a_parameter_without_memory_when_it_is_made(
    kind: str, make: Callable[[], torch.Tensor]
) -> None:
    parameter = make()
    with pytest.raises(ferry.Unsupported, match=f"layer.weight is {kind}.*; "):
        ferry.optim.AdamW([("layer.weight", parameter)])
    optimizer = ferry.optim.AdamW([nn.Parameter(torch.ones(2))])
    with pytest.raises(ferry.Unsupported, match=f"parameter 0 of group 1 is {kind}.*; "):
        optimizer.add_param_group({"params": [parameter]})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("left", [0, 8])
@pytest.mark.parametrize("whose", ["weight", "gradient"])
def test_memory_that_is_given_back_between_steps_is_told(whose: str, left: int) -> None:
    weight = nn.Parameter(torch.ones(4))
    optimizer = ferry.optim.AdamW([("weight", weight)])
    weight.grad = torch.ones(4)
    optimizer.step()
    lost = weight if whose == "weight" else weight.grad
    lost.untyped_storage().resize_(left)
    with pytest.raises(ferry.Unsupported, match=r"weight is a tensor whose memory was given back"):
        optimizer.step()


@pytest.mark.parametrize(("kind", "make"), TRAINED)
def test_a_shadow_model_refuses_a_parameter_without_memory(
    kind: str, make: Callable[[], torch.Tensor]
) -> None:
    model = nn.Linear(2, 2)
    parameter = make()
    if not isinstance(parameter, nn.Parameter):
        pytest.skip("no module takes it")
    model.weight = parameter
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))])
    with pytest.raises(ferry.Error, match=f"weight is ({kind}|on meta)"):
        ferry.ShadowModel(model, optimizer, device="emulated")


def test_lazy_parameters_and_frozen_ones_of_any_kind_may_wait_in_an_optimizer() -> None:
    lazy = nn.LazyLinear(3)
    frozen = nn.Parameter(two(), requires_grad=False)
    whole_numbers = nn.Parameter(torch.ones(3, dtype=torch.int8), requires_grad=False)
    optimizer = ferry.optim.AdamW([*lazy.parameters(), frozen, whole_numbers], lr=0.1)
    lazy(torch.ones(2, 4)).sum().backward()
    before = lazy.weight.detach().clone()
    optimizer.step()
    assert not torch.isclose(before, lazy.weight).any()


def test_a_pending_negation_of_a_gradient_is_done_before_the_step() -> None:
    for gradient in (torch.ones(1), torch._neg_view(torch.ones(1))):
        parameter = nn.Parameter(torch.zeros(1))
        parameter.grad = gradient
        ferry.optim.AdamW([parameter], lr=0.1).step()
        assert float(parameter) == pytest.approx(-0.1 * float(gradient))


def test_state_of_another_kind_is_not_taken_over() -> None:
    parameter = nn.Parameter(torch.ones(4))
    optimizer = ferry.optim.AdamW([("weight", parameter)])
    parameter.grad = torch.ones(4)
    optimizer.step()
    saved = optimizer.state_dict()
    for kind, make in TRAINED:
        if kind != "a lazily negated tensor":
            value = make().detach() if kind != "a Wrapper" else make()
            told = {**saved, "state": {0: {**saved["state"][0], "exp_avg": value}}}
            with pytest.raises(ferry.InvalidInput, match=f"exp_avg of weight is {kind}"):
                optimizer.load_state_dict(told)


@pytest.mark.parametrize("kind", PENDING)
@pytest.mark.parametrize("door", [write, read])
def test_bytes_that_mean_other_numbers_are_neither_written_nor_read_into(
    door: Callable[[torch.Tensor, Path], None], kind: str, tmp_path: Path
) -> None:
    with pytest.raises(ferry.InvalidInput, match=f"{kind}.*resolve_"):
        door(PENDING[kind](), tmp_path / "x")


@pytest.mark.parametrize("kind", PENDING)
@pytest.mark.parametrize("door", [save, save_async, save_by_any_tool])
def test_pending_operations_are_done_when_a_tensor_is_saved(
    door: Callable[[torch.Tensor, Path], None], kind: str, tmp_path: Path
) -> None:
    tensor = PENDING[kind]()
    door(tensor, tmp_path / "x")
    again = ferry.load(tmp_path / "x")["model"]["weight"]
    assert torch.equal(again, tensor.resolve_conj().resolve_neg())


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(3, 4),
        torch.ones(3, 4).t(),
        torch.ones(8)[::3],
        torch.ones(3, 1).expand(3, 4),
        torch.empty(0),
        torch.empty(3, 0, 2),
        torch.ones(4)[4:],
        torch.ones(()),
        torch.ones(3, dtype=torch.bool),
        torch.ones(3, dtype=torch.complex64),
        torch.ones(3, requires_grad=True),
        nn.Parameter(torch.ones(3)),
        nn.Buffer(torch.ones(3)),
        torch.ones(3).as_subclass(Noted),
        NotedParameter(torch.ones(3)),
        torch.ones(3).share_memory_(),  # type: ignore[no-untyped-call]
        torch.from_numpy(np.ones(3)),
        torch.frombuffer(bytearray(16), dtype=torch.float32),
    ],
    ids=range(18),
)
def test_tensors_of_any_order_and_origin_are_plain(tensor: torch.Tensor) -> None:
    assert _kinds.is_plain(tensor)
    assert _kinds.obstacle(tensor) is None
    with torch.inference_mode():
        assert _kinds.is_plain(tensor.clone())


def test_a_subclass_that_adds_only_methods_is_written_and_read(tmp_path: Path) -> None:
    for tensor in (torch.rand(5).as_subclass(Noted), NotedParameter(torch.rand(5))):
        write(tensor, tmp_path / "x")
        again = torch.zeros(5).as_subclass(Noted)
        with ferry.Engine() as engine:
            engine.open(tmp_path / "x").read(into=again).wait()
        assert torch.equal(again, tensor)


def test_the_core_takes_no_missing_address_for_an_empty_tensor(tmp_path: Path) -> None:
    """Everything above asks first; this is what would be left if something did not."""
    group = (1e-3, 0.9, 0.999, 1e-8, 0.0, True, False)
    with pytest.raises(ferry.InvalidInput, match="a tensor has no memory at an address"):
        _lib.adam_step([group], [(0, 1.0, 4, ("F32", 0), ("F32", 0), (0, 0, 0))], 1)
    ferry.save({"weight": torch.ones(4)}, tmp_path / "x")
    with pytest.raises(ferry.InvalidInput, match=r"no memory at an address.*weight"):
        _lib.Checkpoint(str(tmp_path / "x"), tool=None, verify=True).load([(0, 0)])


STATE: dict[str, Any] = {
    "weight": nn.Parameter(torch.arange(12.0).reshape(3, 4)),
    "large": torch.ones(300, 300),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "array": np.arange(5),
    "bytes": bytes(range(256)) * 20,
    "steps": 3,
}
STATE["tied"] = STATE["weight"].detach().t()


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("world_size", [None, 1, 2])
def test_load_makes_fake_tensors_in_fake_mode_as_torch_does(
    mmap: bool, world_size: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "x"
    ranks: dict[str, Any] = {}
    if world_size is None:
        ferry.save(STATE, path)
    else:
        tensors = {"weight": STATE["weight"].detach(), "large": STATE["large"]}
        for rank in range(2):
            part = {name: tensor.chunk(2)[rank] for name, tensor in tensors.items()}
            ferry.save(part, path, rank=rank, world_size=2, sharded={"*": 0})
        ranks = {"rank": 0, "world_size": world_size}
    torch.save({key: value for key, value in STATE.items() if key != "bytes"}, tmp_path / "t")
    with FakeTensorMode():
        loaded = ferry.load(path, mmap=mmap, **ranks)
        theirs = torch.load(tmp_path / "t", weights_only=False)
    real = ferry.load(path, **ranks)
    for name, tensor in real.items():
        if not isinstance(tensor, torch.Tensor):
            continue
        assert type(loaded[name]) in (FakeTensor, type(theirs[name])), name
        assert isinstance(loaded[name], FakeTensor)
        for fact in ("shape", "dtype", "device", "requires_grad"):
            assert getattr(loaded[name], fact) == getattr(tensor, fact), (name, fact)
            if world_size != 2:
                assert world_size or getattr(loaded[name], fact) == getattr(theirs[name], fact)
    if world_size is None:
        assert isinstance(loaded["weight"], nn.Parameter)
        assert np.array_equal(loaded["array"], STATE["array"])
        assert loaded["bytes"] == STATE["bytes"]
        assert loaded["steps"] == 3


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_open_file_gives_in_fake_mode_what_a_load_gives(ranks: int, tmp_path: Path) -> None:
    path = tmp_path / "x"
    for rank, part in enumerate(torch.ones(4, 6).chunk(ranks)):
        ferry.save({"a": part}, path, rank=rank, world_size=ranks, sharded={"a": 0})
    with FakeTensorMode(), ferry.safe_open(path) as file:
        for tensor, shape in [(file.get_tensor("a"), (4, 6)), (file.get_slice("a")[:3], (3, 6))]:
            assert isinstance(tensor, FakeTensor)
            assert (tensor.shape, tensor.dtype) == (shape, torch.float32)


def test_real_tensors_are_saved_and_written_in_fake_mode(tmp_path: Path) -> None:
    state: dict[str, Any] = {
        "row": torch.rand(4),
        "column": torch.rand(3, 4).t(),
        "array": np.arange(3),
    }
    with FakeTensorMode():
        ferry.save(state, tmp_path / "x")
        write(state["row"], tmp_path / "y")
    loaded = ferry.load(tmp_path / "x")
    assert torch.equal(loaded["row"], state["row"])
    assert torch.equal(loaded["column"], state["column"])
    assert (tmp_path / "y").read_bytes() == state["row"].numpy().tobytes()


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.functionalize, torch.func.vmap])
def test_load_works_inside_of_transforms(transform: Callable[..., Any], tmp_path: Path) -> None:
    left, right = torch.ones(4, 6).chunk(2, 1)
    state = {"small": torch.ones(3), "large": torch.ones(300, 300), "row": left[1]}
    state |= {"left": left, "right": right}
    ferry.save(state, tmp_path / "x")
    ferry.save(state, tmp_path / "ranks", rank=0, world_size=1, ties="shared")
    seen = []

    def function(tensor: torch.Tensor) -> torch.Tensor:
        for path in ("x", "ranks"):
            loaded = ferry.load(tmp_path / path)
            seen.append(sum(float(each.sum()) for each in loaded.values()))
        return tensor.sum()

    transform(function)(torch.ones(2, 2))
    assert seen == [90030.0] * 2


@pytest.mark.parametrize("tool", ["direct", "torch", "numpy"])
@pytest.mark.parametrize("context", [nullcontext, lambda: torch.device("meta")])
def test_a_default_device_says_nothing_about_what_is_loaded(
    tool: str, context: Callable[[], AbstractContextManager[Any]], tmp_path: Path
) -> None:
    ferry.save(torch.arange(3.0), tmp_path / "x", tool=tool)
    with context():
        loaded = ferry.load(tmp_path / "x")
        made = ferry.optim.AdamW([nn.Parameter(torch.ones(3, device="cpu"))])
        made.param_groups[0]["params"][0].grad = torch.ones(3, device="cpu")
        made.step()
    assert loaded.device.type == "cpu"
    assert torch.equal(loaded, torch.arange(3.0))
    assert float(made.state_dict()["state"][0]["step"]) == 1
