"""Every tool with one size: `python small-files.py BYTES ROUNDS DIRECTORY`; medians and means in ms."""

import os
import random
import statistics
import sys
import time

import torch
from tensorferry._checkpoint import run, tools
from tensorferry._structure import flatten

size, rounds, directory = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
obj = torch.randint(0, 255, (size,), dtype=torch.uint8)
options = tools.SaveOptions(durable=True, checksum=True)
readers = {"direct": ["direct", "buffered", "mapped"], "numpy": ["numpy"], "torch": ["torch"]}
taken: dict[str, list[float]] = {}


def timed(name, call):
    began = time.perf_counter()
    call()
    taken.setdefault(name, []).append(time.perf_counter() - began)


for _ in range(rounds):
    for name in random.sample(["direct", "buffered", "numpy", "torch"], 4):
        tool, path = tools.tool_named(name), os.path.join(directory, name)
        timed(f"write {name}", lambda: run.save_with(tool, obj, flatten(obj), path, options))
    for writer, names in readers.items():
        for name in random.sample(names, len(names)):
            path = os.path.join(directory, writer)
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            tool = tools.tool_named(name)
            timed(f"read {name}", lambda: tool.load(path, tools.LoadOptions()))
for name, seconds in taken.items():
    median, mean = statistics.median(seconds) * 1e3, statistics.fmean(seconds) * 1e3
    print(f"{size:8} {name:15} {median:.3f} {mean:.3f}")
