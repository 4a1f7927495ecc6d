"""What a user writes to add a tool."""

from __future__ import annotations

from typing import Any


class Tool:
    """A way of your own between an object and a file, for ``TensorIO(tools=[...])``.

    ::

        class Raw(ferry.Tool):
            name = "raw"

            def refuses(self, obj):
                return None if is_bytes(obj) else "it takes one tensor of bytes"

            def save(self, obj, path):
                obj.numpy().tofile(path)

            def load(self, path, map_location):
                return torch.from_numpy(numpy.fromfile(path, numpy.uint8))

        io = ferry.TensorIO(tools=["direct", "buffered", Raw()])

    It is tried now and then, and used where it is the fastest, as any other.
    """

    name: str = ""
    """Letters, digits, ``-``, ``_`` and ``.``; by it, what is learned is kept."""

    format: str = ""
    """What it writes and reads: ``"safetensors"``, ``"torch"``, ``"numpy"``, the name of a tool
    that was added before, or its own name, which is meant if nothing is given. A file is read by
    any tool of the format in which it was written."""

    def refuses(self, obj: Any) -> str | None:
        """Why an object can't be saved this way; None if it can."""
        return None

    def save(self, obj: Any, path: str) -> None:
        """Writes the object to a file, which is empty; it is put in its place, and made durable if
        that is asked for, by whoever calls."""
        raise NotImplementedError

    def load(self, path: str, map_location: Any) -> Any:
        """Reads what was saved; ``map_location`` as in ``torch.load``."""
        raise NotImplementedError

    def recognises(self, beginning: bytes) -> bool:
        """Whether a file that begins with these bytes (up to 64) is of this tool's own format.
        Asked about files that nobody of ours knows, and that this process has not saved."""
        return False
