"""The README's snippets, run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def test_every_python_snippet_of_the_readme_works(tmp_path: Path) -> None:
    snippets = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(snippets) >= 3
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(snippets)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "can't open file (file: missing.bin): No such file" in done.stdout
