"""Objects become tensors and a text, and come back: every type, dtype and tie, and all refusals."""

import ctypes
import gc
import json
import math
import struct
import subprocess
import sys
import warnings
from collections import Counter, OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import tensorferry as ferry
from tensorferry import _structure as structure
from tensorferry._structure.dtypes import BY_TORCH_NAME, OF_TORCH

ALLOWED = (
    "an object to save consists of dict, OrderedDict, Counter, list, tuple, set, frozenset, None, "
    "bool, int, float, complex, str, bytes, bytearray, tensors, parameters, NumPy arrays and "
    "scalars, torch.Size, torch.dtype and torch.device"
)
STORED = {name: dtype for dtype, name in OF_TORCH.items()}
QUANTIZED = ["qint32", "qint8", "quint2x4", "quint4x2", "quint8"]


def stored_copies(flat: structure.Flat, *, shift: int = 0) -> dict[str, torch.Tensor]:
    """What a file would give: the bytes of each stored tensor, ``shift`` off any alignment."""
    copies = {}
    for stored in flat.stored:
        address, _keeper = stored.materialize()
        memory = torch.zeros(stored.nbytes + 64, dtype=torch.uint8)
        dtype = STORED[stored.dtype]
        start = -memory.data_ptr() % 64 + shift * dtype.itemsize
        raw = memory[start : start + stored.nbytes]
        if stored.nbytes:
            ctypes.memmove(raw.data_ptr(), address, stored.nbytes)
        assert math.prod(stored.shape) * dtype.itemsize == stored.nbytes
        copies[stored.name] = raw.view(dtype).reshape(stored.shape)
    return copies


def again(obj: Any, *, shift: int = 0, ties: structure.Ties = "names") -> Any:
    """Through the text and back."""
    flat = structure.flatten(obj, ties)
    assert flat.nbytes == sum(stored.nbytes for stored in flat.stored)
    parsed = structure.parse(structure.structure_text(flat, checksum=True, tool="direct"))
    read, stored = set(structure.names(parsed.object)), {stored.name for stored in flat.stored}
    assert read == stored if flat.version == 1 else read <= stored
    copies = stored_copies(flat, shift=shift)
    return structure.build(parsed.object, {name: copies[name] for name in read}.__getitem__)


def names_of(obj: Any, ties: structure.Ties = "names") -> list[str]:
    return [stored.name for stored in structure.flatten(obj, ties).stored]


BOTH = pytest.mark.parametrize("ties", ["names", "shared"])
"""Each way to store what shares memory."""


def bytes_of(tensor: torch.Tensor) -> bytes:
    (stored,) = structure.flatten(tensor).stored
    address, _keeper = stored.materialize()
    return ctypes.string_at(address, stored.nbytes)


def assert_same(left: Any, right: Any) -> None:
    """Equal in type and value, down to bits, order and attributes."""
    assert type(left) is type(right)
    if isinstance(left, torch.Tensor):
        assert (left.dtype, left.shape, left.device) == (right.dtype, right.shape, right.device)
        assert left.requires_grad == right.requires_grad
        assert bytes_of(left) == bytes_of(right)
    elif isinstance(left, np.ndarray | np.generic):
        assert (left.dtype.str, left.shape) == (right.dtype.str, right.shape)
        assert left.tobytes() == right.tobytes()
    elif isinstance(left, dict):
        assert_same(list(left), list(right))
        assert_same(list(left.values()), list(right.values()))
        assert_same(getattr(left, "_metadata", None), getattr(right, "_metadata", None))
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    elif isinstance(left, float):
        assert struct.pack("d", left) == struct.pack("d", right)
    elif isinstance(left, complex):
        assert_same([left.real, left.imag], [right.real, right.imag])
    else:
        assert left == right


VALUES: list[Any] = [
    None,
    True,
    0,
    -(2**63),
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    10**5000,
    2**65535,
    0.0,
    -0.0,
    0.1,
    1e22,
    5e-324,
    sys.float_info.max,
    math.inf,
    -math.inf,
    math.nan,
    struct.unpack("d", struct.pack("Q", 0xFFF8000000000123))[0],
    1 + 2j,
    complex(-0.0, math.nan),
    "",
    'é\n"\\\0\U0001f600',
    b"",
    b"\x00\xff",
    bytes(range(256)) * 16,
    bytes(range(256)) * 17,
    bytearray(b"abc"),
    bytearray(5000),
    torch.Size([2, 0, 3]),
    torch.Size([]),
    torch.bfloat16,
    torch.device("cpu"),
    torch.device("cuda:1"),
    torch.device("meta"),
]

CONTAINERS: list[Any] = [
    {},
    [],
    (),
    set(),
    frozenset(),
    OrderedDict(),
    Counter(),
    {"b": 1, "a": {"": [2, (3, [])]}},
    {1: "a", None: "b", 2.5: "c", "1": "d", b"x": "e", (1, ("a", b"")): "f", math.inf: "g"},
    {True: 1, 2: 3, -(2**70): 4},
    {10**5000: torch.ones(1), (10**5000,): 1},
    OrderedDict([("z", 1), ("a", OrderedDict([(1, 2)]))]),
    Counter({"a": 3, "b": -1}),
    Counter({30: 1, 80: 2}),
    {1, "a", None, 2.5, b"x", (1, 2), frozenset({1, frozenset()})},
    frozenset({"a", ("b", frozenset({1}))}),
    {"dict": 1, "tensor": "no", "odict": {}, "metadata": None},
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_plain_values_come_back_to_the_last_bit(value: Any) -> None:
    for obj in (value, [value], {"a": value}, (value, {1: value})):
        assert_same(again(obj), obj)


@pytest.mark.parametrize("value", CONTAINERS, ids=range(len(CONTAINERS)))
def test_containers_come_back_with_their_order(value: Any) -> None:
    for obj in (value, [value], {"a": value}):
        assert_same(again(obj), obj)


def test_a_counter_keeps_whatever_it_counts() -> None:
    counts: Counter[str] = Counter()
    dict.update(counts, {"a": None, "b": torch.ones(2)})
    assert_same(again(counts), counts)


def test_a_set_gives_the_same_text_in_every_process() -> None:
    code = (
        "from tensorferry import _structure as s;"
        "print(s.structure_text(s.flatten(set('abcdefgh')), checksum=True, tool=''))"
    )
    texts = {
        subprocess.check_output(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": _package()}
        )
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def _package() -> str:
    return str(Path(ferry.__file__).parent.parent)


def random_tensor(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    count = math.prod(shape)
    raw = torch.randint(0, 256, (max(1, count) * dtype.itemsize,), dtype=torch.uint8)
    if dtype is torch.bool:
        raw %= 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # complex32 is experimental
        empty = torch.empty(0, dtype=dtype)
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        return empty.set_(raw.untyped_storage(), 0, shape, strides)


@pytest.mark.parametrize("name", sorted(set(BY_TORCH_NAME) - set(QUANTIZED)))
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (7,), (3, 5)])
@pytest.mark.parametrize("shift", [0, 1])
def test_tensors_of_every_dtype_come_back_bit_for_bit(
    name: str, shape: tuple[int, ...], shift: int
) -> None:
    dtype = BY_TORCH_NAME[name]
    tensor = random_tensor(dtype, shape)
    (stored,) = structure.flatten(tensor).stored
    assert stored.name == "tensor"
    assert stored.nbytes == tensor.nbytes
    assert stored.address == tensor.data_ptr()
    if dtype in OF_TORCH:
        assert (stored.dtype, stored.shape) == (OF_TORCH[dtype], shape)
    else:
        assert (stored.dtype, stored.shape) == ("U8", (*shape, dtype.itemsize))
    assert_same(again(tensor, shift=shift), tensor)
    if len(shape) == 2:
        both = [tensor, tensor.T]
        assert_same(again(both, shift=shift), both)
        assert_same(again(tensor.T, shift=shift), tensor.T)
        assert again(tensor.T).is_contiguous()
        assert_same(again(tensor[:, ::2], shift=shift), tensor[:, ::2])


def test_the_names_of_dtypes_are_those_of_safetensors() -> None:
    from safetensors.torch import _TYPES

    assert {name: STORED[name] for name in _TYPES} == _TYPES


NUMPY_ARRAYS = [
    np.arange(6, dtype=code).reshape(2, 3)
    for code in ("i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8")
] + [
    np.array([True, False]),
    np.array(3.5),
    np.zeros((0, 4), np.float32),
    np.arange(3, dtype=">f4"),
    np.arange(3, dtype=">i8"),
    np.array([1 + 2j], np.complex64),
    np.array([1 + 2j], np.complex128),
    np.array([1.5], np.longdouble),
    np.array(["2020-01-01", "NaT"], "datetime64[ns]"),
    np.array([1, 2], "timedelta64[25s]"),
    np.array([b"ab", b"c"]),
    np.array(["é", "abc"]),
    np.zeros(3, "V5"),
    np.arange(12).reshape(3, 4)[:, ::2],
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(5)[::-1],
    np.broadcast_to(np.float32(1), (3, 2)),
]


@pytest.mark.parametrize("array", NUMPY_ARRAYS, ids=lambda array: f"{array.dtype.str}{array.shape}")
@pytest.mark.parametrize("shift", [0, 1])
def test_arrays_of_every_plain_dtype_come_back_bit_for_bit(array: Any, shift: int) -> None:
    made = again(array, shift=shift)
    assert_same(made, array)
    assert made.flags.aligned
    assert_same(again({"a": [array]}, shift=shift), {"a": [array]})


def test_native_arrays_are_stored_under_their_dtype_and_others_as_bytes() -> None:
    (stored,) = structure.flatten(np.zeros((2, 3), np.float32)).stored
    assert (stored.dtype, stored.shape) == ("F32", (2, 3))
    (stored,) = structure.flatten(np.zeros((2, 3), ">f4")).stored
    assert (stored.dtype, stored.shape) == ("U8", (2, 3, 4))


@pytest.mark.parametrize(
    "scalar",
    [
        np.float32(1.5),
        np.float64(-0.0),
        np.int64(7),
        np.bool_(True),
        np.complex64(1j),
        np.longdouble("1.1"),
        np.datetime64("2020-01-01", "D"),
        np.str_("é"),
        np.str_(""),
        np.bytes_(b"ab"),
        np.float32(math.nan),
    ],
    ids=lambda scalar: f"{scalar.dtype.str}-{scalar}",
)
def test_numpy_scalars_come_back_as_scalars(scalar: Any) -> None:
    assert_same(again([scalar]), [scalar])
    flat = structure.flatten(scalar)
    assert not flat.stored
    name, digits = flat.object["scalar"]
    assert np.dtype(name).itemsize * 2 == len(digits)


def test_the_version_of_torch_comes_back_as_a_text() -> None:
    assert again({"torch": torch.__version__}) == {"torch": str(torch.__version__)}
    assert type(again(torch.__version__)) is str


# -- names --


def test_names_are_dotted_paths_and_a_flat_state_dict_keeps_its_keys() -> None:
    t = [torch.full((2,), float(i)) for i in range(9)]
    assert names_of({"a.b": t[0], "c": t[1]}) == ["a.b", "c"]
    nested = {"model": {"layers": [t[0], (t[1],)]}, 3: {None: t[2], (1, "x"): t[3]}, "": t[4]}
    assert names_of(nested) == ["model.layers.0", "model.layers.1.0", "3.None", "3.(1, 'x')", ""]
    assert names_of([{"x": bytes(5000)}]) == ["0.x"]
    assert names_of(bytes(5000)) == ["bytes"]


def test_names_that_collide_are_numbered() -> None:
    t = [torch.full((2,), float(i)) for i in range(5)]
    obj = {"a": {"b": t[0]}, "a.b": t[1], "a.b#2": t[2], "__metadata__": t[3], 1: t[4], "1": t[0]}
    made = again(obj)
    assert_same(made, obj)
    assert names_of(obj) == ["a.b", "a.b#2", "a.b#2#2", "__metadata__#2", "1", "1#2"]
    same = {(1,): {str(i): torch.ones(1) for i in range(3)}, "(1,)": [torch.ones(1)] * 1}
    assert names_of(same) == ["(1,).0", "(1,).1", "(1,).2", "(1,).0#2"]


# -- sharing --


def storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@BOTH
def test_tied_tensors_stay_tied_under_each_name_or_stored_once(ties: structure.Ties) -> None:
    weight = torch.randn(4, 3)
    state = {"head": weight, "embed": weight.detach(), "other": torch.randn(2)}
    names = {"names": ["head", "embed", "other"], "shared": ["head", "other"]}
    assert names_of(state, ties) == names[ties]
    made = again(state, ties=ties)
    assert_same(made, state)
    assert made["head"] is not made["embed"]
    made["head"][0, 0] = 7
    assert made["embed"][0, 0] == 7


@BOTH
def test_one_object_in_two_places_is_one_object_again(ties: structure.Ties) -> None:
    tensor, array = torch.randn(3), np.arange(3)
    parameter = torch.nn.Parameter(torch.randn(3), requires_grad=False)
    empty = torch.empty(0, 4)
    obj = [tensor, {"a": tensor}, array, (array,), parameter, parameter, empty, empty]
    assert len(names_of(obj, ties)) == (8 if ties == "names" else 4)
    made = again(obj, ties=ties)
    assert_same(made, obj)
    assert made[0] is made[1]["a"]
    assert made[2] is made[3][0]
    assert made[4] is made[5]
    assert made[6] is made[7]


@BOTH
def test_views_inside_a_whole_tensor_are_views_of_it_again(ties: structure.Ties) -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    obj = {
        "row": whole[1],
        "column": whole[:, 2],
        "whole": whole,
        "transposed": whole.T,
        "bits": whole.view(torch.int32),
        "bytes": whole.view(torch.uint8)[:, 3:5],
        "complex": whole.view(torch.complex64),
        "expanded": whole[0, 0].expand(3),
    }
    flat = structure.flatten(obj, ties)
    stored = {s.name: (s.dtype, s.shape) for s in flat.stored}
    assert stored["whole"] == ("F32", (4, 6))
    assert list(stored) == (list(obj) if ties == "names" else ["whole"])
    if ties == "names":
        shapes = {name: shape for name, (_, shape) in stored.items()}
        assert shapes == {name: tuple(tensor.shape) for name, tensor in obj.items()}
    assert structure.names(flat.object) == ["whole"], "the others are views of it"
    for shift in (0, 1):
        made = again(obj, shift=shift, ties=ties)
        assert_same(made, obj)
        assert len({storage(tensor) for tensor in made.values()}) == 1
        assert made["transposed"].stride() == (1, 6)
        made["whole"][1, 2] = -1
        assert made["row"][2] == made["column"][1] == made["transposed"][2, 1] == -1


@pytest.mark.parametrize("shift", [0, 1])
@BOTH
def test_views_that_no_tensor_covers_share_the_bytes_between_them(
    ties: structure.Ties, shift: int
) -> None:
    whole = torch.arange(100.0)
    obj = [whole[10:20], whole[15:30], whole[12:40:3], whole.view(torch.float64)[6:8]]
    flat = structure.flatten(obj, ties)
    stored = [(s.name, s.dtype, s.shape) for s in flat.stored]
    if ties == "names":
        shapes = [("F32", (10,)), ("F32", (15,)), ("F32", (10,)), ("F64", (2,))]
        assert stored == [(str(i), *shape) for i, shape in enumerate(shapes)]
    else:
        assert stored == [("0.storage", "U8", (120,))]
    made = again(obj, shift=shift, ties=ties)
    assert_same(made, obj)
    assert [tensor.stride() for tensor in made] == [(1,), (1,), (3,), (1,)]
    made[0][5] = -1
    assert made[1][0] == made[2][1] == -1


@BOTH
def test_elements_stand_at_multiples_of_their_size_even_if_the_first_leaf_does_not(
    ties: structure.Ties,
) -> None:
    raw = torch.arange(64, dtype=torch.uint8)
    obj = [raw[1:30], raw.view(torch.float32)[1:5], raw.view(torch.complex128)[1:2]]
    flat = structure.flatten(obj, ties)
    assert flat.stored[0].shape == ((32,) if ties == "shared" else (29,))
    for shift in range(3):
        assert_same(again(obj, shift=shift, ties=ties), obj)
    floats = torch.arange(10.0)
    obj = [floats[1:], floats.view(torch.complex64)[1:3]]
    assert names_of(obj, ties) == (["0.storage"] if ties == "shared" else ["0", "1"])
    for shift in range(3):
        made = again(obj, shift=shift, ties=ties)
        assert_same(made, obj)
        assert storage(made[0]) == storage(made[1])


@BOTH
def test_bytes_that_are_given_out_before_their_views_stay_tied_wherever_they_lie(
    ties: structure.Ties,
) -> None:
    raw = torch.arange(32, dtype=torch.uint8)
    obj = [raw, raw.view(torch.float64), raw.view(torch.float32)]
    for shift in range(9):
        made = again(obj, shift=shift, ties=ties)
        assert_same(made, obj)
        assert len({storage(tensor) for tensor in made}) == 1


def test_disjoint_views_are_stored_apart_and_none_drags_its_storage_along() -> None:
    whole = torch.randn(1000)
    obj = {"a": whole[:10], "b": whole[10:20], "c": whole[100:200:10], "d": whole[5:5]}
    flat = structure.flatten(obj)
    assert [(s.name, s.nbytes) for s in flat.stored] == [("a", 40), ("b", 40), ("c", 40), ("d", 0)]
    assert_same(again(obj), obj)


@BOTH
def test_one_tensor_seen_twice_the_same_way_is_stored_in_order(ties: structure.Ties) -> None:
    whole = torch.randn(4, 6)
    obj = [whole[:, 1], whole[:, 1], torch.randn(3).expand(5, 3)]
    stored = [s.nbytes for s in structure.flatten(obj, ties).stored]
    assert stored == ([16, 60] if ties == "shared" else [16, 16, 60])
    made = again(obj, ties=ties)
    assert_same(made, obj)
    assert made[0].data_ptr() == made[1].data_ptr()


@BOTH
def test_memory_of_one_array_under_two_tensors_is_tied_where_they_agree(
    ties: structure.Ties,
) -> None:
    array = np.arange(6.0)
    obj = [torch.from_numpy(array), torch.from_numpy(array), torch.from_numpy(array[2:])]
    assert names_of(obj, ties) == (["0", "2"] if ties == "shared" else ["0", "1", "2"])
    made = again(obj, ties=ties)
    assert_same(made, obj)
    assert storage(made[0]) == storage(made[1])


def random_view(random: Random, raw: torch.Tensor) -> torch.Tensor:
    dtypes = [torch.uint8, torch.float16, torch.float32, torch.int64, torch.complex128]
    tensor = raw.view(random.choice(dtypes))
    count = len(tensor)
    start = random.randrange(count)
    tensor = tensor[start : random.randint(start, count) : random.randint(1, 3)]
    if len(tensor) % 2 == 0 and random.random() < 0.5:
        tensor = tensor.view(2, -1)
        tensor = tensor.T if random.random() < 0.5 else tensor
    if random.random() < 0.1:
        tensor = tensor.unsqueeze(0).expand(2, *tensor.shape)
    return tensor


def reach(tensor: torch.Tensor) -> range:
    """The bytes from the first to the last."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    elements = 1 + sum((size - 1) * stride for size, stride in steps) if tensor.numel() else 0
    return range(tensor.data_ptr(), tensor.data_ptr() + elements * tensor.element_size())


@pytest.mark.parametrize("seed", range(200))
@BOTH
def test_any_views_come_back_as_far_apart_as_they_were_if_they_overlap(
    ties: structure.Ties, seed: int
) -> None:
    random = Random(seed)
    storages = [torch.arange(random.choice([16, 64, 192]), dtype=torch.uint8) for _ in range(2)]
    views = [random_view(random, random.choice(storages)) for _ in range(random.randint(1, 6))]
    made = again(views, shift=random.randrange(5), ties=ties)
    assert_same(made, views)
    if ties == "names":
        stored = structure.flatten(views).stored
        assert [s.nbytes for s in stored] == [view.numel() * view.itemsize for view in views]
    for one, made_one in zip(views, made, strict=True):
        for other, made_other in zip(views, made, strict=True):
            left, right = reach(one), reach(other)
            if left and right and left.start < right.stop and right.start < left.stop:
                assert storage(made_one) == storage(made_other)
                apart = one.data_ptr() - other.data_ptr()
                assert made_one.data_ptr() - made_other.data_ptr() == apart


def test_a_part_of_what_shares_memory_is_read_alone() -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    q, k, v = whole.chunk(3, 1)
    flat = structure.flatten({"q": q, "k": k, "v": v, "row": whole[1, :4]})
    copies = stored_copies(flat)

    def part(*keys: str) -> tuple[list[str], Any]:
        node = {"dict": structure.select(flat.object, keys)}
        read = structure.names(node)
        return read, structure.build(node, {name: copies[name] for name in read}.__getitem__)

    read, made = part("k")
    assert read == ["k"]
    assert_same(made, {"k": k})
    read, made = part("row", "q")
    assert read == ["row", "q"]
    assert_same(made, {"row": whole[1, :4], "q": q})
    made["row"][0] = -1
    assert made["q"][1, 0] == -1


def test_a_small_view_of_a_huge_memory_costs_what_it_holds() -> None:
    rows = torch.empty(1024, 1024, dtype=torch.uint8)
    obj = {"a": rows[:, 0], "b": rows[:, 1], "c": rows[::512, :3]}
    assert sum(s.nbytes for s in structure.flatten(obj).stored) == 2 * 1024 + 6


def test_elements_in_several_places_of_a_view_are_put_back_once() -> None:
    base = torch.arange(12.0)
    windows = base.unfold(0, 4, 2)
    spread = base[2:5].unsqueeze(0).expand(1000, 3)
    obj = {"windows": windows, "spread": spread, "other": base[1:3], "deep": windows[(None,) * 40]}
    made = again(obj)
    assert_same(made, obj)
    assert len({storage(tensor) for tensor in made.values()}) == 1
    assert made["spread"].stride() == (0, 1)


def test_components_of_one_storage_do_not_mix() -> None:
    whole = torch.arange(100.0)
    obj = {f"{i}{j}": whole[i * 10 + j : i * 10 + j + 5] for i in range(4) for j in range(2)}
    assert names_of(obj, "shared") == [f"{i}0.storage" for i in range(4)]
    assert names_of(obj) == list(obj)
    for ties in ("names", "shared"):
        made = again(obj, ties=ties)
        assert_same(made, obj)
        assert len({storage(tensor) for tensor in made.values()}) == 4


# -- what tensors are besides their elements --


def test_parameters_and_requires_grad_come_back() -> None:
    parameter = torch.nn.Parameter(torch.randn(3))
    obj = {
        "parameter": parameter,
        "frozen": torch.nn.Parameter(torch.arange(3), requires_grad=False),
        "alias": parameter.detach(),
        "leaf": torch.randn(2, requires_grad=True),
        "result": parameter * 2,
    }
    made = again(obj)
    assert_same(made, obj)
    assert made["result"].is_leaf
    with torch.no_grad():
        made["parameter"][0] = 5
    assert made["alias"][0] == 5


def test_pending_conjugation_and_negation_are_done_before_storing() -> None:
    tensor = torch.randn(3, dtype=torch.complex64)
    for pending in (tensor.conj(), tensor.conj().imag, tensor.conj()[1:], torch._neg_view(tensor)):
        assert pending.is_conj() or pending.is_neg()
        assert again(pending).equal(pending.resolve_conj().resolve_neg())


def test_stored_tensors_are_placed_once_before_their_views_are_made() -> None:
    whole = torch.arange(6.0)
    flat = structure.flatten([whole, whole[1:], np.arange(3), bytes(5000)])
    calls: list[tuple[list[int], str]] = []

    def place(tensor: torch.Tensor, device: str) -> torch.Tensor:
        calls.append((list(tensor.shape), device))
        return tensor.to("meta")

    made = structure.build(flat.object, stored_copies(flat).__getitem__, place)
    assert calls == [([6], "cpu")]
    assert [tensor.device.type for tensor in made[:2]] == ["meta", "meta"]
    node = {"tensor": {"name": "w", "device": "cuda:1"}}
    structure.build([node, node], lambda name: torch.ones(2), place)
    assert calls[1:] == [([2], "cuda:1")]


def test_each_stored_tensor_is_asked_for_once() -> None:
    weight = torch.randn(4)
    flat = structure.flatten([weight, weight[1:], weight.data])
    asked = []
    copies = stored_copies(flat)

    def fetch(name: str) -> torch.Tensor:
        asked.append(name)
        return copies[name]

    structure.build(flat.object, fetch)
    assert asked == ["0"]


def test_memory_stays_alive_while_it_is_to_be_stored() -> None:
    def made() -> structure.Flat:
        return structure.flatten([torch.arange(3.0), np.arange(3.0), torch.ones(2, 2).T[0]])

    flat = made()
    gc.collect()
    again = structure.build(flat.object, stored_copies(flat).__getitem__)
    assert_same(again, [torch.arange(3.0), np.arange(3.0), torch.ones(2)])


# -- what torch itself makes --


def test_the_state_of_a_module_keeps_its_metadata() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    state = model.state_dict()
    made = again({"model": state, "epoch": 3})
    assert_same(made["model"], state)
    assert made["model"]._metadata[""] == {"version": 1}
    model.load_state_dict(made["model"], strict=True)


OPTIMIZERS: list[Callable[[Any], torch.optim.Optimizer]] = [
    lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, amsgrad=True),
    lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    lambda parameters: torch.optim.Adagrad(parameters),
    lambda parameters: torch.optim.RMSprop(parameters, lr=torch.tensor(0.1)),
]
SCHEDULERS: list[Callable[[Any], Any]] = [
    lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9),
    lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5, 5]),
    lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
    lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10),
    lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
]


@pytest.mark.parametrize("optimizer", range(len(OPTIMIZERS)))
def test_the_state_of_optimizers_comes_back(optimizer: int) -> None:
    model = torch.nn.Linear(3, 2)
    optim = OPTIMIZERS[optimizer](model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optim.step()
    state = optim.state_dict()
    made = again(state)
    assert_same(made, state)
    optim.load_state_dict(made)
    if optimizer == 0:
        assert names_of({"optimizer": state})[1] == "optimizer.state.0.exp_avg"
        assert structure.flatten(state).only_torch


@pytest.mark.parametrize("scheduler", range(len(SCHEDULERS)))
def test_the_state_of_schedulers_comes_back(scheduler: int) -> None:
    optimizer = torch.optim.SGD(torch.nn.Linear(3, 2).parameters(), lr=0.1, momentum=0.9)
    made = SCHEDULERS[scheduler](optimizer)
    optimizer.step()
    made.step(1.0) if scheduler == 4 else made.step()
    state = made.state_dict()
    assert_same(again(state), state)
    made.load_state_dict(again(state))


def test_the_state_of_a_scaler_and_of_random_generators_comes_back() -> None:
    scaler = torch.amp.GradScaler("cpu")
    obj = {
        "scaler": scaler.state_dict(),
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(),
        "args": {"lr": 1e-3, "dims": (1, 2), "dtype": torch.bfloat16},
    }
    assert_same(again(obj), obj)


def _with_attribute() -> torch.Tensor:
    tensor = torch.ones(2)
    tensor.tag = Path  # type: ignore[attr-defined]
    return tensor


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        ({"a": [torch.ones(2), (1, 2.5, "x", None, True)], 1: torch.Size([1])}, True),
        (torch.nn.Linear(2, 2).state_dict(), True),
        ([torch.nn.Parameter(torch.ones(2)), torch.float16, torch.device("cpu"), 2**80], True),
        ({"a": {1, 2}}, False),
        ([b"x"], False),
        (np.float32(1), False),
        ([np.arange(2)], False),
        ([Counter()], False),
        (1j, False),
        ({"v": torch.__version__}, False),
        (1 << 2038, True),
        (1 << 2039, False),
        ([_with_attribute()], False),
    ],
)
def test_what_torch_alone_could_read_is_known(obj: Any, expected: bool, tmp_path: Path) -> None:
    assert structure.flatten(obj).only_torch is expected
    if expected:
        torch.save(obj, tmp_path / "a")
        assert_same(torch.load(tmp_path / "a", weights_only=True), obj)


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (torch.ones(2), True),
        (torch.ones(2, dtype=torch.complex128), True),
        (np.arange(2), False),
        (torch.ones(2, dtype=torch.bfloat16), False),
        (torch.ones(2, requires_grad=True), False),
        (torch.nn.Parameter(torch.ones(2)), False),
        ([torch.ones(2)], False),
        (3, False),
    ],
)
def test_what_is_one_tensor_that_numpy_knows_is_known(obj: Any, expected: bool) -> None:
    assert structure.flatten(obj).single is expected


# -- refusals --


class Subclass(torch.Tensor):
    pass


class Text(str):
    pass


Pair = namedtuple("Pair", "a b")


def with_attribute() -> Any:
    made: Any = OrderedDict(a=1)
    made.note = 1
    return made


REFUSED: list[tuple[Any, str]] = [
    ({"optimizer": {"state": {3: {"hook": print}}}}, "optimizer.state[3].hook: builtin_function_"),
    (len, f"the object: builtin_function_or_method; {ALLOWED}"),
    ([0, ({"x y": object()},)], f"[1][0]['x y']: object; {ALLOWED}"),
    ({"class": {"class": Path}}, f"class.class: type; {ALLOWED}"),
    ({"k" * 200: object()}, f".{'k' * 200}: object; {ALLOWED}".removeprefix(".")),
    ({"-" * 200: object()}, f"['{'-' * 96}...]: object; {ALLOWED}"),
    (
        {"a": Text("x")},
        "a: test_structure.Text, which would come back as another type; pass str(...); " + ALLOWED,
    ),
    (
        [Pair(1, 2)],
        "[0]: test_structure.Pair, which would come back as another type; pass tuple(...); "
        + ALLOWED,
    ),
    (
        defaultdict(list),
        "the object: collections.defaultdict, which would come back as another type; "
        "pass dict(...); " + ALLOWED,
    ),
    (
        {"m": np.ma.masked_array([1])},
        "m: numpy.ma.MaskedArray, which would come back as another type; pass np.asarray(...); "
        + ALLOWED,
    ),
    (
        {1: {object: 2}},
        "[1][<class 'object'>]: a dict with a key of type type; "
        "keys are None, bool, int, float, str, bytes or tuples of these",
    ),
    (
        {np.int64(1): 2},
        "[np.int64(1)]: a dict with a key of type numpy.int64; "
        "keys are None, bool, int, float, str, bytes or tuples of these",
    ),
    (
        {"s": {torch.float32}},
        "s: a set with an element of type torch.dtype; "
        "elements of sets are None, bool, int, float, str, bytes, tuples or frozensets of these",
    ),
    ({"s": {bytes(4097)}}, "s: a set with an element of 4097 bytes; 4096 are the most"),
    ({"i": 1 << 65536}, "i: an int of 65537 bits; 65536 are the most"),
    ({"t": "\ud800"}, "t: a text with lone surrogates, which UTF-8 can't write"),
    ({"\udfff": 1}, "['\\udfff']: a text with lone surrogates, which UTF-8 can't write"),
    (
        {"m": with_attribute()},
        "m: an OrderedDict with the attribute 'note', which would be lost; "
        "delete the attribute or pass OrderedDict(...)",
    ),
    ({"t": torch.ones(2).to_sparse()}, "t: a tensor of layout sparse_coo; pass tensor.to_dense()"),
    (
        {"t": torch.ones(2).to_mkldnn()},
        "t: a tensor of layout _mkldnn; pass tensor.to_dense()",
    ),
    (
        {"t": torch.ones(2, device="meta")},
        "t: a tensor on the meta device, which has no data; load or initialize it first",
    ),
    (
        {"t": torch.ones(2).as_subclass(Subclass)},
        "t: test_structure.Subclass; only plain tensors and parameters can be saved; save "
        "tensor.as_subclass(torch.Tensor)",
    ),
    (
        [np.array([object()])],
        "[0]: a NumPy array of dtype object; records, objects and texts of any length have no "
        "bytes to store; pass plain numbers",
    ),
    (
        [np.zeros(2, [("a", "i4")])],
        "[0]: a NumPy array of dtype [('a', '<i4')]; records, objects and texts of any length have "
        "no bytes to store; pass plain numbers",
    ),
    (
        np.zeros(1, "V65537"),
        "the object: a NumPy array with elements of 65537 bytes; they have 1 to 65536",
    ),
    ({"s": np.str_("x" * 16385)}, "s: a NumPy scalar of 65540 bytes; 65536 are the most"),
]


@pytest.mark.parametrize(("obj", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_can_not_be_saved_is_refused_with_its_path(obj: Any, message: str) -> None:
    with pytest.raises(ferry.InvalidInput) as caught:
        structure.flatten(obj)
    assert str(caught.value).startswith(f"can't save {message}")


def test_more_dimensions_than_a_file_may_have_are_refused() -> None:
    with pytest.raises(ferry.InvalidInput, match="a tensor of 65 dimensions; 64 are the most"):
        structure.flatten({"a": torch.ones(2)[:1].reshape([1] * 65)})


@pytest.mark.filterwarnings("ignore")
def test_compressed_quantized_nested_and_freed_tensors_are_refused() -> None:
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    for tensor, why in [
        (torch.ones(2, 2).to_sparse_csr(), "a tensor of layout sparse_csr; pass tensor.to_dense()"),
        (quantized, "a quantized tensor; pass tensor.int_repr() and keep its scales and zero"),
        (nested, "a nested tensor; pass its parts: tensor.unbind()"),
        (jagged, "a nested tensor; pass its parts: tensor.unbind()"),
        (freed, "a tensor whose memory was given back, as sharding or offloading does; gather"),
    ]:
        with pytest.raises(ferry.InvalidInput) as caught:
            structure.flatten({"a": [tensor]})
        assert str(caught.value).startswith(f"can't save a[0]: {why}")


def test_cycles_are_named() -> None:
    inner: dict[str, Any] = {"x": 1}
    inner["back"] = [{}, {"again": inner}]
    with pytest.raises(ferry.InvalidInput) as caught:
        structure.flatten({"model": (inner,)})
    assert str(caught.value) == (
        "can't save model[0].back[1].again: it is model[0] again; break the cycle first"
    )
    itself: list[Any] = []
    itself.append(itself)
    with pytest.raises(ferry.InvalidInput) as caught:
        structure.flatten(itself)
    assert str(caught.value) == "can't save [0]: it is the object again; break the cycle first"
    twice = [1]
    assert again([twice, twice, {"a": twice}]) == [[1], [1], {"a": [1]}]


def nested(levels: int, wrap: Callable[[Any], Any], core: Any) -> Any:
    for _ in range(levels):
        core = wrap(core)
    return core


@pytest.mark.parametrize(
    ("wrap", "step"),
    [
        (lambda inner: [inner], "[0]"),
        (lambda inner: {"k": inner}, ".k"),
        (lambda inner: {1: inner}, "[1]"),
        (lambda inner: (inner,), "[0]"),
    ],
)
def test_containers_nest_as_deep_as_is_promised_and_no_deeper(wrap: Any, step: str) -> None:
    deep = nested(structure.NESTING_MAX, wrap, torch.ones(2, requires_grad=True))
    assert_same(again(deep), deep)
    path = (step * structure.NESTING_MAX).removeprefix(".")
    with pytest.raises(ferry.InvalidInput) as caught:
        structure.flatten(wrap(deep))
    assert str(caught.value) == f"can't save {path}: more than 40 containers inside one another"


# -- text --


def test_the_text_is_what_the_format_says() -> None:
    weight = torch.zeros(2, 2)
    obj = {"w": weight, "row": weight[1], "n": {1: (float("inf"), "é")}}
    rest = '"n":{"dict":[[1,{"tuple":[{"float":"7ff0000000000000"},"é"]}]]}}}}'
    flat = structure.flatten(obj, "shared")
    text = structure.structure_text(flat, checksum=False, tool="direct")
    assert text == (
        '{"version":1,"checksum":false,"tool":"direct","object":{"dict":{"w":{"tensor":"w"},'
        '"row":{"tensor":{"name":"w","shape":[2],"stride":[1],"offset":8}},' + rest
    )
    flat = structure.flatten(obj)
    text = structure.structure_text(flat, checksum=False, tool="direct")
    assert text == (
        '{"version":2,"checksum":false,"tool":"direct","object":{"dict":{"w":{"tensor":'
        '{"name":"w","dtype":"float32","itemsize":4,"shape":[2,2],"stride":[2,1],"offset":0,'
        '"memory":0}},"row":{"tensor":{"name":"row","dtype":"float32","itemsize":4,"shape":[2],'
        '"stride":[1],"offset":8,"memory":0}},' + rest
    )
    flat = structure.flatten({"n": obj["n"], "w": weight})
    assert structure.structure_text(flat, checksum=True, tool="").startswith('{"version":1,')
    same = structure.flatten({"a": weight, "b": weight.detach(), "c": weight})
    node = {"name": "a", "memory": 0, "object": 0}
    assert same.object["dict"]["a"] == {"tensor": node}
    assert same.object["dict"]["b"] == {"tensor": {"name": "b", "memory": 0}}
    assert same.object["dict"]["c"] == {"tensor": {**node, "name": "c"}}
    parsed = structure.parse(text)
    assert (parsed.version, parsed.checksum, parsed.tool) == (2, False, "direct")
    assert parsed.object == json.loads(text)["object"]


@pytest.mark.parametrize(
    ("node", "error", "message"),
    [
        ({"dtype": "float3"}, ferry.Unsupported, r"this torch \(.*\) has no dtype 'float3'"),
        ({"device": "moon:1"}, ferry.Unsupported, "this torch knows no device 'moon:1'"),
        (
            {
                "tensor": {
                    "name": "w",
                    "dtype": "float64",
                    "itemsize": 4,
                    "shape": [1],
                    "stride": [1],
                    "offset": 0,
                }
            },
            ferry.Corrupt,
            r"elements of 4 bytes are not of dtype float64 \(tensor: w\)",
        ),
        (
            {"tensor": {"name": "w", "shape": [9], "stride": [1], "offset": 0}},
            ferry.Corrupt,
            r"a view reaches beyond the bytes of its tensor \(tensor: w\)",
        ),
        (
            {"tensor": {"name": "i", "grad": True}},
            ferry.Corrupt,
            "the tensor 'i' can't be made from what the file says: only Tensors of floating",
        ),
        (
            {"array": {"name": "w", "numpy": "<M8[no]"}},
            ferry.Corrupt,
            "the array 'w' can't be made from what the file says: ",
        ),
        (
            {"scalar": ["<U1", "ffffffff"]},
            ferry.Corrupt,
            "a scalar of dtype <U1 can't be made from what the file says: ",
        ),
    ],
)
def test_what_only_torch_or_numpy_can_judge_is_refused_when_it_is_built(
    node: Any, error: type[Exception], message: str
) -> None:
    store = {"w": torch.ones(4), "i": torch.ones(4, dtype=torch.int64)}
    with pytest.raises(error, match=message):
        structure.build(node, store.__getitem__)


def test_errors_of_the_store_pass_through_as_they_are() -> None:
    def fetch(name: str) -> torch.Tensor:
        raise ValueError(name)

    for tag in ("tensor", "array", "blob"):
        leaf: Any = {"name": "w", "numpy": "<f4"} if tag == "array" else "w"
        with pytest.raises(ValueError, match=r"^w$"):
            structure.build({tag: leaf}, fetch)


# -- parts --


def test_parts_are_selected_by_dotted_path() -> None:
    obj = {
        "model": {"a.b": {"c": torch.ones(1)}, "a": {"b": {"d": 2}}},
        "optimizer": {"state": {3: {"step": 7}, (1, 2): 8}},
        "list": [10, (11, 12)],
        "none": None,
        "": {"": 5},
        3: "three",
    }
    node = structure.flatten(obj).object
    values = {
        "none": None,
        "model.a.b.d": 2,
        "optimizer.state.3": {"step": 7},
        "optimizer.state.(1, 2)": 8,
        "list.1.0": 11,
        "list": [10, (11, 12)],
        ".": 5,
        "3": "three",
    }
    selected = structure.select(node, list(values))
    built = structure.build({"dict": selected}, lambda name: torch.ones(1))
    assert built == values
    part = structure.select(node, ["model.a.b.c"])["model.a.b.c"]
    assert structure.names(part) == ["model.a.b.c"]
    assert structure.names(structure.select(node, ["optimizer"])["optimizer"]) == []


def test_parts_that_share_tensors_are_built_together() -> None:
    weight = torch.ones(3)
    flat = structure.flatten({"a": {"w": weight}, "b": {"w": weight}, "c": torch.ones(1)})
    selected = {"dict": structure.select(flat.object, ["a", "b.w"])}
    assert structure.names(selected) == ["a.w"]
    made = structure.build(selected, stored_copies(flat).__getitem__)
    assert made["a"]["w"] is made["b.w"]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("modle", "; close to it: 'model'"),
        ("model.layer.1", "; close to it: 'model.layers.1', 'model.layers.0', 'model.layers'"),
        ("model.layers.7", "; close to it: 'model.layers.1', 'model.layers.0', 'model.layers'"),
        ("xyz", "; at the top there are 'model', 'epoch'"),
        ("epoch.x", "; close to it: 'epoch'"),
    ],
)
def test_a_part_that_is_not_there_is_named_with_what_is_close(key: str, hint: str) -> None:
    node = structure.flatten({"model": {"layers": [1, 2]}, "epoch": 3}).object
    with pytest.raises(ferry.NotFound) as caught:
        structure.select(node, ["epoch", key])
    assert str(caught.value) == f"the checkpoint has nothing at {key!r}{hint}"
    with pytest.raises(ferry.NotFound) as caught:
        structure.select(None, ["a"])
    assert str(caught.value) == "the checkpoint has nothing at 'a'"
