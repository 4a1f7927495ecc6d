"""The documents: their snippets run as they stand, and what they point to is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNS = sorted((ROOT / "benches/runs").iterdir())
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benches/**/*.md")])


@pytest.mark.parametrize(
    ("document", "at_least", "printed"),
    [
        ("README.md", 4, "missing.ferry"),
        ("docs/engine.md", 1, "in_flight"),
        ("docs/observe.md", 2, "can't open file (file: missing.bin): No such file"),
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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_document_leads_to_a_file_or_a_heading(document: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "code", document.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" in link:
            continue
        name, _, heading = link.partition("#")
        target = document.parent / name if name else document
        assert target.exists(), f"{document.relative_to(ROOT)} links to {link}"
        assert not heading or heading in anchors(target), f"no heading for {link}"


def test_every_limit_has_its_name_where_the_page_says() -> None:
    text = (ROOT / "docs/limits.md").read_text()
    named = re.findall(r"^\| .*? \| (.*?`[^`]*`) in `([\w/.]+)` \|", text, flags=re.MULTILINE)
    assert len(named) > 30
    for names, path in named:
        top = "python/tensorferry" if path.endswith(".py") else "crates/tensorferry/src"
        source = (ROOT / top / path).read_text()
        for name in re.findall(r"`(\w+)`", names.split(";")[-1]):
            assert re.search(rf"\b{name}\b", source), f"{top}/{path} has no {name}"


def anchors(document: Path) -> set[str]:
    """What GitHub calls the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize(
    "run", sorted((ROOT / "benches/runs").iterdir()), ids=lambda path: path.name
)
def test_a_committed_run_is_described_and_has_no_raw_traces(run: Path) -> None:
    assert (run / "README.md").is_file()
    assert run.name in (ROOT / "benches/README.md").read_text()
    assert [path.name for path in run.rglob("*") if path.stat().st_size > 200_000] == []
