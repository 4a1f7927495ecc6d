"""Where a first load's time goes: the memory that a machine's host has taken back.

    python first-load.py FILE [ROUNDS]

Each round makes and frees as much memory as the file has, and loads the file as the first thing that a new
process does: at once, when the kernel still has that memory, and after ten seconds, when it has told the host of
it (free page reporting, where the kernel counts it). Beside them fio reads the file. Cold cache.
"""

import json
import os
import statistics
import subprocess
import sys
import time

LOAD = """
import json, sys, time
import tensorferry, torch
sys.stdin.readline()
cpu, began = time.process_time(), time.perf_counter()
kept = tensorferry.load(sys.argv[1])
print(json.dumps([time.perf_counter() - began, time.process_time() - cpu]))
"""
FREE = """
import mmap, sys
memory = mmap.mmap(-1, int(sys.argv[1]), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
for at in range(0, len(memory), 4096):
    memory[at] = 1
"""
COUNTER = "/sys/module/page_reporting/parameters/reported_kib"


def reported() -> int:
    try:
        with open(COUNTER) as file:
            return int(file.read()) << 10
    except OSError:
        return 0


def load(path: str, pause: float) -> tuple[float, float]:
    """Seconds and processor seconds; the process has started and imported before memory is freed."""
    loader = subprocess.Popen(
        [sys.executable, "-c", LOAD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    time.sleep(3)
    size = str(os.path.getsize(path) * 3 // 2)
    subprocess.run([sys.executable, "-c", FREE, size], check=True)
    time.sleep(pause)
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    seconds, cpu = json.loads(loader.communicate("\n")[0])
    return seconds, cpu


def fio(path: str) -> float:
    command = f"fio --name=r --filename={path} --readonly --rw=read --bs=1M --iodepth=16 --direct=1"
    command += " --ioengine=io_uring --fixedbufs --registerfiles --output-format=json"
    huge = os.environ | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    ran = subprocess.run(command.split(), check=True, capture_output=True, env=huge)
    told = json.loads(ran.stdout)
    return told["jobs"][0]["read"]["bw_bytes"]


def main() -> None:
    path, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7
    size = os.path.getsize(path)
    rates = {"freed just before": [], "freed ten seconds before": [], "fio": []}
    for _ in range(rounds):
        for name, pause in (("freed just before", 0.0), ("freed ten seconds before", 10.0)):
            before = reported()
            seconds, cpu = load(path, pause)
            rates[name].append(size / seconds / 1e9)
            told = (reported() - before) / 1e9
            print(f"{name:26} {size / seconds / 1e9:6.2f} GB/s  {cpu:5.2f} s of processors  "
                  f"{told:5.2f} GB told to the host", flush=True)
        rates["fio"].append(fio(path) / 1e9)
        print(f"{'fio':26} {rates['fio'][-1]:6.2f} GB/s", flush=True)
    for name, found in rates.items():
        print(f"median {name:26} {statistics.median(found):6.2f} GB/s")


main()
