"""The compiled core. Private: its names change without notice; use ``tensorferry``."""

from collections.abc import Sequence
from typing import Final

__all__ = [
    "KINDS",
    "__version__",
    "_error_for_tests",
    "_panic_for_tests",
    "cli_main",
    "parse_size",
]

__version__: Final[str]
KINDS: Final[tuple[str, ...]]

def cli_main(args: Sequence[str], python: str | None = None) -> int: ...
def parse_size(size: str | int) -> int: ...
def _panic_for_tests(message: str) -> None: ...
def _error_for_tests(kind: str, message: str, errno: int | None = None) -> None: ...
