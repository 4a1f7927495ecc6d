"""Runs the workloads and tells what came of them, a line of JSON each.

The files go to a directory that is made under ``--path`` and removed at the end, also after an
interrupt.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import shutil
import sys
import tempfile
import warnings
from importlib import metadata
from pathlib import Path
from typing import IO

from tensorferry._bench_data.bench import Bench
from tensorferry._bench_data.cases import WORKLOADS
from tensorferry._bench_data.scale import SCALES
from tensorferry._bench_data.table import Table

PACKAGES = ("torch", "torchvision", "pillow", "numpy", "spdl", "webdataset", "tensorferry")
DALI = "nvidia-dali-cuda"


def versions() -> dict[str, str | None]:
    """What is installed here; None for what is not."""
    found: dict[str, str | None] = {"python": platform.python_version(), "dali": None}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    # Its package is named after the CUDA it was built for.
    for installed in metadata.distributions():
        if str(installed.metadata["Name"]).lower().startswith(DALI):
            found["dali"] = installed.version
    return found


def run(bench: Bench, workloads: list[str]) -> None:
    """One after the other; one whose packages are missing says so in place of its figures."""
    bench.say(hello={"versions": versions(), "directory": str(bench.directory)})
    for name in workloads:
        try:
            importlib.import_module(f"tensorferry._bench_data.{name}").run(bench)
        except ModuleNotFoundError as error:
            module = str(error.name).partition(".")[0]
            package = {"PIL": "pillow"}.get(module, module)
            why = f"{package} is not installed; pip install {package}"
            bench.show(Table(name, "", [], absent=why))
        for left in bench.directory.iterdir():
            shutil.rmtree(left)
    bench.say(end={})


def main() -> int:
    """Reads the arguments, and removes the directory however it ends."""
    arguments = argparse.ArgumentParser(prog="tensorferry._bench_data")
    arguments.add_argument("--path", type=Path, required=True)
    arguments.add_argument("--set", choices=SCALES, default="quick", dest="scale")
    arguments.add_argument("--only", choices=WORKLOADS, action="append")
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    workloads = [name for name in WORKLOADS if given.only is None or name in given.only]
    directory = Path(tempfile.mkdtemp(prefix=".tensorferry-bench-", dir=given.path))
    try:
        run(bench_for(directory, given.scale, workloads, lines()), workloads)
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def bench_for(directory: Path, scale: str, workloads: list[str], out: IO[str]) -> Bench:
    """The bench, which knows how many steps there will be."""
    chosen = SCALES[scale]
    modules = [importlib.import_module(f"tensorferry._bench_data.{name}") for name in workloads]
    return Bench(directory, chosen, sum(module.steps(chosen) for module in modules), out)


def lines() -> IO[str]:
    """Standard output; whatever a library prints must not come between the lines."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out


if __name__ == "__main__":
    sys.exit(main())
