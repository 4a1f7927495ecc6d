"""Who may decide about a save: make its index, or remove its files.

Ranks that can't talk may find at the same time that the files of all are there. If one of them
could not make the index and removed the files, while another one was about to make it, the index
would name what is gone. So who decides holds a lock, on the file of rank 0 of that save.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from tensorferry._checkpoint.ranks.names import beside


class Claim(Enum):
    """What was found."""

    HELD = "this rank decides"
    TAKEN = "another rank is deciding"
    UNKNOWN = "there are no locks here, and nobody can tell"


@contextmanager
def claim(path: str, files: list[str]) -> Iterator[Claim]:
    """Claims the save of which these are the files beside an index, and does not wait for it."""
    first = beside(path, files[0])
    try:
        # Over a network, only who may write can lock.
        file = os.open(first, os.O_RDWR if os.access(first, os.W_OK) else os.O_RDONLY)
    except OSError:
        yield Claim.UNKNOWN
        return
    try:
        yield _lock(file)
    finally:
        os.close(file)


def _lock(file: int) -> Claim:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return Claim.TAKEN if error.errno == errno.EWOULDBLOCK else Claim.UNKNOWN
    return Claim.HELD
