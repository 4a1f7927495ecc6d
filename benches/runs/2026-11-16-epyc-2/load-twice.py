"""Loads 1 GiB from the disk twice in a process, the second time with the memory of the first.

    python load-twice.py DIRECTORY

Each sample is a process of its own: it loads into memory that is new to it, lets go of the result,
and loads again. A small load comes first, so that neither pays for imports and for opening the
engine. The file is out of the page cache both times, and every byte is read from the tensors
before the clock stops, as in ``tensorferry bench checkpoint``. Prints seconds.
"""

import os
import subprocess
import sys
import tempfile
import time

import torch

import tensorferry as ferry

SAMPLES = 7
BYTES, TENSORS = 1 << 30, 16


def main() -> None:
    """Makes the files, and measures in processes of their own."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as directory:
        words = BYTES // TENSORS // 8
        state = {f"layer.{i}": torch.empty(words, dtype=torch.int64) for i in range(TENSORS)}
        for tensor in state.values():
            tensor.random_()
        ferry.save(state, os.path.join(directory, "checkpoint"))
        ferry.save({"small": torch.ones(1)}, os.path.join(directory, "small"))
        del state, tensor
        print(f"load average when started: {os.getloadavg()[0]:.2f}", flush=True)
        for _ in range(SAMPLES):
            subprocess.run([sys.executable, __file__, directory, "sample"], check=True)


def sample(directory: str) -> None:
    """One line of the output."""
    ferry.load(os.path.join(directory, "small"), tool="direct")
    path = os.path.join(directory, "checkpoint")
    new, again = timed_load(path), timed_load(path)
    print(f"new memory {new:.3f}  memory of the first load {again:.3f}", flush=True)


def timed_load(path: str) -> float:
    """Seconds of a load; what was loaded is let go of after the clock has stopped."""
    evict(path)
    start = time.perf_counter()
    state = ferry.load(path, tool="direct")
    for tensor in state.values():
        tensor.amax()
    return time.perf_counter() - start


def evict(path: str) -> None:
    """Drops a file from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)  # Only clean pages can be dropped.
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


if __name__ == "__main__":
    sample(sys.argv[1]) if len(sys.argv) > 2 else main()
