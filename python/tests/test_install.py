"""``pip install ./python`` from a clone, into an environment that has nothing."""

import os
import subprocess
import sys
import venv
from pathlib import Path

from children import HANG_SECONDS

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path) -> str:
    # The build finds maturin beside this interpreter: nothing is fetched.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        env={**os.environ, "PATH": path, "PYTHONPATH": ""},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_pip_installs_a_clone_into_an_environment_that_has_nothing(tmp_path: Path) -> None:
    build = ["wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(tmp_path)]
    run(sys.executable, "-m", "pip", *build, ROOT / "python")
    (wheel,) = tmp_path.glob("tensorferry-*.whl")
    venv.create(tmp_path / "fresh", with_pip=True)
    fresh = tmp_path / "fresh/bin"
    run(fresh / "python", "-m", "pip", "install", "--no-index", wheel)
    assert "torch" in run(fresh / "tensorferry", "doctor")
    code = "import tensorferry as ferry; print(ferry.Engine().facts()['backend'])"
    assert run(fresh / "python", "-c", code).strip() in {"ring", "threads"}
