"""The package as a whole: what importing it costs and what it ships."""

import importlib.metadata
import importlib.resources
import subprocess
import sys

from children import HANG_SECONDS

import tensorferry as ferry


def run(code: str) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, timeout=HANG_SECONDS)
    return done.stdout.decode().strip()


def test_importing_the_package_does_not_import_torch_or_numpy() -> None:
    code = "import sys, tensorferry; print({'torch', 'numpy'} & set(sys.modules))"
    assert run(code) == "set()"


def test_the_version_is_the_distributions() -> None:
    assert ferry.__version__ == importlib.metadata.version("tensorferry")


def test_the_package_ships_its_types() -> None:
    files = importlib.resources.files(ferry)
    assert (files / "py.typed").is_file()
    assert (files / "_lib.pyi").is_file()
