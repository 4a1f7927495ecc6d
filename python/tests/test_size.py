"""Sizes as arguments."""

from typing import Any

import numpy as np
import pytest

import tensorferry as ferry


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("8GiB", 8 << 30),
        ("500MB", 500_000_000),
        (" 1.5 KiB ", 1536),
        ("4096", 4096),
        (0, 0),
        (2**64 - 1, 2**64 - 1),
        (np.int32(7), 7),
    ],
)
def test_a_size_is_a_string_with_a_unit_or_a_number_of_bytes(size: Any, expected: int) -> None:
    assert ferry.parse_size(size) == expected


@pytest.mark.parametrize("size", ["", "lots", "-1", "1e9", "8 GiB free", "20000000PiB"])
def test_a_string_that_is_no_size_is_an_error_that_shows_how_to_write_one(size: str) -> None:
    with pytest.raises(ferry.InvalidInput) as caught:
        ferry.parse_size(size)
    assert str(caught.value) == (
        f'"{size}" is not a size; write a whole number of bytes or a number with a unit '
        'such as "8GiB", "500MB" or "1.5TiB"'
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (-1, "a size can't be negative: -1"),
        (2**64, "a size can't be more than 2**64 - 1: 18446744073709551616"),
        (-(2**70), "a size can't be negative: -1180591620717411303424"),
    ],
)
def test_an_int_out_of_range_is_invalid_input(size: int, text: str) -> None:
    with pytest.raises(ferry.InvalidInput) as caught:
        ferry.parse_size(size)
    assert str(caught.value) == text
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1.5, "float: 1.5"),
        (True, "bool: True"),
        (None, "NoneType: None"),
        (b"8GiB", "bytes: b'8GiB'"),
        ([1], "list: [1]"),
        (np.float32(2), "float32: np.float32(2.0)"),
    ],
)
def test_another_type_is_a_type_error_that_names_it(size: Any, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        ferry.parse_size(size)
    assert str(caught.value) == (
        f'a size is an int of bytes or a str with a unit such as "8GiB", not {text}'
    )


def test_a_string_that_is_not_valid_unicode_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        ferry.parse_size("8GiB\udc80")
