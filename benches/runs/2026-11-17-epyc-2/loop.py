"""How much a pure Python loop loses while 1 GiB is saved behind it: `python loop.py SAMPLES [DIRECTORY]`.

Turn by turn: the loop alone for half a second, the loop from the moment in which `ferry.save_async`
returns until the file is in its place.
"""

import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

import tensorferry as ferry

STEP = 10_000


def count_until(stop):
    """Steps a second."""
    count, began = 0, time.perf_counter()
    while True:
        for _ in range(STEP):
            count += 1
        if stop():
            return count / (time.perf_counter() - began)


def alone():
    end = time.perf_counter() + 0.5
    return count_until(lambda: time.perf_counter() >= end)


def during(state, path):
    path.unlink(missing_ok=True)
    job, done = ferry.save_async(state, path), threading.Event()
    waiter = threading.Thread(target=lambda: (job.wait(), done.set()))
    waiter.start()
    rate = count_until(done.is_set)
    waiter.join()
    return rate


def main():
    samples, directory = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "."
    state = {str(number): torch.ones(16 << 20) for number in range(16)}
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        path = Path(folder) / "state"
        during(state, path)
        pairs = []
        for _ in range(samples):
            pairs.append((alone(), during(state, path)))
            time.sleep(0.3)
    free = statistics.median(pair[0] for pair in pairs)
    busy = statistics.median(pair[1] for pair in pairs)
    print(f"alone {free / 1e6:.1f} M/s, during {busy / 1e6:.1f} M/s: {busy / free:.2f}")
    print("each over the median alone:", *(f"{pair[1] / free:.2f}" for pair in pairs))


if __name__ == "__main__":
    main()
