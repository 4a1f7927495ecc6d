"""The main job of `make quickstart`: tensorferry at work beside torch, and what was measured.

Each part lies in `parts/`. Everything that they write lies in one directory inside this tree and is
removed in the end.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from parts import activations, checkpoints, data, parameters
from parts.common import say

import tensorferry as ferry

SCRATCH = Path(__file__).resolve().parent.parent / "quickstart-out"
PARTS = {
    "Data": data.run,
    "Checkpoints": checkpoints.run,
    "Activations": activations.run,
    "Parameters": parameters.run,
}


def main() -> None:
    """Runs the parts and cleans up."""
    with ferry.Engine() as engine:
        facts = engine.facts()
    say(f"engine: {facts['backend']} ({facts['why']}); torch {torch.__version__}")
    shown = []
    for name, run in PARTS.items():
        print(f"\n{name}")
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir()
        try:
            shown.append(f"{name}\n{run(SCRATCH)}")
        finally:
            shutil.rmtree(SCRATCH, ignore_errors=True)
    print("", *shown, sep="\n\n")
    print("\n  What this machine offers: .venv/bin/tensorferry doctor")


if __name__ == "__main__":
    main()
