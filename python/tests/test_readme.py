"""The snippets of the documents, run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("document", "at_least", "printed"),
    [
        ("README.md", 4, "can't open file (file: missing.bin): No such file"),
        ("docs/checkpoints.md", 5, "saved 0."),
        ("docs/data.md", 4, "samples/s"),
        ("docs/activations.md", 3, "drive writes a day"),
        ("docs/optimizer.md", 2, "optimizer-0.state, 2.1 MiB; 3 steps"),
        ("docs/parameters.md", 3, "planned, iteration 12; emulated:"),
    ],
)
def test_every_python_snippet_of_a_document_works(
    tmp_path: Path, document: str, at_least: int, printed: str
) -> None:
    text = (ROOT / document).read_text()
    snippets = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(snippets) >= at_least
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(snippets)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout
