"""Runs workloads and tells what came of them, a line of JSON each.

The files go to a directory that is made under ``--path`` and removed at the end, also after an
interrupt.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from tensorferry_bench.bench import Bench
from tensorferry_bench.table import Table


@dataclass(frozen=True)
class Suite:
    """A package of workloads: a module each, with ``steps`` and ``run``."""

    package: str
    workloads: tuple[str, ...]
    scales: Mapping[str, Any]
    """By the name given to ``--set``; the first is for tests, the second is what is usual."""
    packages: tuple[str, ...]
    """Whose versions are told."""

    def main(self) -> int:
        """Reads the arguments, and removes the directory however it ends."""
        given = self._arguments()
        warnings.simplefilter("ignore")
        workloads = [name for name in self.workloads if not given.only or name in given.only]
        directory = Path(tempfile.mkdtemp(prefix=".tensorferry-bench-", dir=given.path))
        try:
            self._run(self._bench(directory, given.scale, workloads), workloads)
        except (KeyboardInterrupt, BrokenPipeError):
            return 130
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return 0

    def _arguments(self) -> argparse.Namespace:
        arguments = argparse.ArgumentParser(prog=self.package)
        arguments.add_argument("--path", type=Path, required=True)
        usual = list(self.scales)[1]
        arguments.add_argument("--set", choices=self.scales, default=usual, dest="scale")
        arguments.add_argument("--only", choices=self.workloads, action="append")
        return arguments.parse_args()

    def _bench(self, directory: Path, scale: str, workloads: list[str]) -> Bench[Any]:
        """The bench, which knows how many steps there will be."""
        chosen = self.scales[scale]
        steps = sum(self._module(name).steps(chosen) for name in workloads)
        return Bench(directory, chosen, steps, lines())

    def _run(self, bench: Bench[Any], workloads: list[str]) -> None:
        """One after the other; one whose packages are missing says so in place of its figures."""
        bench.say(hello={"versions": versions(self.packages), "directory": str(bench.directory)})
        for name in workloads:
            try:
                self._module(name).run(bench)
            except ModuleNotFoundError as error:
                module = str(error.name).partition(".")[0]
                package = {"PIL": "pillow"}.get(module, module)
                why = f"{package} is not installed; pip install {package}"
                bench.show(Table(name, "", [], absent=why))
            for left in bench.directory.iterdir():
                shutil.rmtree(left)
        bench.say(end={})

    def _module(self, workload: str) -> ModuleType:
        return importlib.import_module(f"{self.package}.{workload}")


def versions(packages: tuple[str, ...]) -> dict[str, str | None]:
    """What is installed here; None for what is not."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
        if package == "dali":
            found[package] = dali()
    return found


def dali() -> str | None:
    """Its package is named after the CUDA it was built for."""
    for installed in metadata.distributions():
        if str(installed.metadata["Name"]).lower().startswith("nvidia-dali-cuda"):
            return installed.version
    return None


def lines() -> IO[str]:
    """Standard output; whatever a library prints must not come between the lines."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out
