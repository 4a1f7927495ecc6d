"""The exceptions, one class per kind of error in the core.

They are written in Python, not in the binding, because each also inherits from the builtin
exception that existing code already catches: ``except FileNotFoundError`` sees a ``NotFound``.
The binding looks a class up by the kind's name and calls it with what the core knows.
"""

from collections.abc import Mapping
from typing import Any


class Error(Exception):
    """Something went wrong in tensorferry. Decide by class or ``kind``, never by message."""

    kind: str = "Error"
    """The kind's name, the same in Rust and in Python."""

    retryable: bool
    """Whether the same call may succeed later without a change by the caller."""

    context: dict[str, str]
    """Named facts, in the order in which they were added: ``file``, ``offset``, ..."""

    errno: int | None
    """The operating system's number for the failure, if one lies underneath."""

    def __init__(
        self,
        message: str = "",
        *,
        retryable: bool = False,
        context: Mapping[str, str] | None = None,
        errno: int | None = None,
    ) -> None:
        """Called by the binding with the message exactly as the core words it."""
        super().__init__(message)
        self.retryable = retryable
        self.context = dict(context or {})
        self.errno = errno

    def __str__(self) -> str:
        """The message and nothing else: ``OSError`` would put the error number before it."""
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Exceptions cross process borders (DataLoader workers, torchrun); nothing may be lost."""
        facts = (str(self), self.retryable, self.context, self.errno)
        return (_rebuild, (type(self), *facts), self.__dict__)


def _rebuild(
    cls: type[Error], message: str, retryable: bool, context: dict[str, str], errno: int | None
) -> Error:
    return cls(message, retryable=retryable, context=context, errno=errno)


class InvalidInput(Error, ValueError):
    """An argument or a combination of arguments makes no sense."""

    kind = "InvalidInput"


class NotFound(Error, FileNotFoundError):
    """A file, directory or name that must exist does not."""

    kind = "NotFound"


class PermissionDenied(Error, PermissionError):
    """The operating system refuses access."""

    kind = "PermissionDenied"


class Corrupt(Error):
    """Bytes from outside contradict their format or their checksum."""

    kind = "Corrupt"


class Truncated(Corrupt):
    """Bytes from outside end too early."""

    kind = "Truncated"


class OutOfSpace(Error, OSError):
    """The disk, or the quota on it, is full."""

    kind = "OutOfSpace"


class FileTooLarge(Error, OSError):
    """A file would grow beyond what its file system or the process limit allows."""

    kind = "FileTooLarge"


class OutOfMemory(Error, MemoryError):
    """Host or device memory, or a budget of it, is exhausted."""

    kind = "OutOfMemory"


class Timeout(Error, TimeoutError):
    """A limit on waiting has passed."""

    kind = "Timeout"


class Closed(Error):
    """The file, engine or queue was closed."""

    kind = "Closed"


class Unsupported(Error):
    """This kernel, device, file system or build can't do what was asked."""

    kind = "Unsupported"


class Io(Error, OSError):
    """The storage or the kernel reported a failure."""

    kind = "Io"


class Internal(Error, RuntimeError):
    """A promise of tensorferry was broken: a bug. Please report it with the message."""

    kind = "Internal"


ALL: tuple[type[Error], ...] = (
    InvalidInput,
    NotFound,
    PermissionDenied,
    Corrupt,
    Truncated,
    OutOfSpace,
    FileTooLarge,
    OutOfMemory,
    Timeout,
    Closed,
    Unsupported,
    Io,
    Internal,
)

# Users know these as `tensorferry.NotFound`; tracebacks and pickles should too.
for _class in (Error, *ALL):
    _class.__module__ = "tensorferry"
