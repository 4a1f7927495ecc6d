"""Tools of the user's own."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorferry as ferry
from tensorferry import Tool

MAGIC = b"RAW1"


class Raw(Tool):
    """Bytes as they are, behind four letters."""

    name = "raw"

    def __init__(self) -> None:
        self.saved = 0

    def refuses(self, obj: Any) -> str | None:
        """Anything but a tensor of bytes."""
        fits = isinstance(obj, torch.Tensor) and obj.dtype == torch.uint8 and obj.dim() == 1
        return None if fits else "it takes one tensor of bytes"

    def save(self, obj: Any, path: str) -> None:
        """Writes."""
        self.saved += 1
        with open(path, "wb") as file:
            file.write(MAGIC)
            obj.numpy().tofile(file)

    def load(self, path: str, map_location: Any) -> Any:
        """Reads."""
        return torch.from_numpy(np.fromfile(path, np.uint8, offset=len(MAGIC)))

    def recognises(self, beginning: bytes) -> bool:
        """By the letters."""
        return beginning.startswith(MAGIC)


class Npy(Tool):
    """NumPy's format, by another tool."""

    name = "npy"
    format = "numpy"

    def refuses(self, obj: Any) -> str | None:
        """Anything but a tensor."""
        return None if isinstance(obj, torch.Tensor) else "it takes one tensor"

    def save(self, obj: Any, path: str) -> None:
        """Writes."""
        with open(path, "wb") as file:
            np.save(file, obj.numpy())

    def load(self, path: str, map_location: Any) -> Any:
        """Reads."""
        return torch.from_numpy(np.load(path))


def io(*tools: Any, **arguments: Any) -> ferry.TensorIO:
    """One that keeps nothing."""
    return ferry.TensorIO(tools=tools, persist=False, **arguments)


def bytes_of(size: int) -> torch.Tensor:
    """A tensor of bytes."""
    return torch.arange(size, dtype=torch.int64).to(torch.uint8)


def test_a_tool_is_used_by_its_name_for_everything(tmp_path: Path) -> None:
    raw = io("direct", Raw(), tool="raw")
    tensor = bytes_of(10_000)
    report = raw.save(tensor, tmp_path / "x")
    assert (report.tool, report.bytes) == ("raw", 10_004)
    assert (tmp_path / "x").read_bytes()[:4] == MAGIC
    assert torch.equal(raw.load(tmp_path / "x"), tensor)
    tools = {row["situation"]: set(row["tools"]) for row in raw.report().rows}
    assert tools["durable"] == {"raw"}
    assert "raw" in str(raw.report())


def test_a_tool_takes_part_in_the_dictionary_and_is_used_where_it_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Quick(Raw):
        name = "quick"

    def slow(*arguments: Any, save: Any = torch.save) -> None:
        # So that it loses on a busy machine, too.
        time.sleep(0.02)
        save(*arguments)

    monkeypatch.setattr(torch, "save", slow)
    mixed = io("torch", Quick())
    small = bytes_of(64)
    for _ in range(80):
        mixed.save(small, tmp_path / "x", durable=False)
    used = {row["best"] for row in mixed.report().rows}
    assert used == {"quick"}
    assert mixed.dictionary()["WDic"]["64"]["times"].keys() >= {"quick"}
    assert torch.equal(mixed.load(tmp_path / "x"), small)


def test_the_published_algorithm_tries_it_after_ours(tmp_path: Path) -> None:
    paper = io("direct", "numpy", Raw(), explore="paper")
    used = [paper.save(bytes_of(100), tmp_path / "x", durable=False).tool for _ in range(3)]
    assert used == ["direct", "numpy", "raw"]


def test_it_is_named_in_a_dictionary_of_ones_own(tmp_path: Path) -> None:
    own = io("direct", Raw(), dictionary={"1": "direct", "1MiB": "raw"})
    assert own.save(bytes_of(10), tmp_path / "x").tool == "direct"
    assert own.save(bytes_of(1 << 20), tmp_path / "x").tool == "raw"


def test_an_object_that_it_refuses_is_saved_by_another(tmp_path: Path) -> None:
    mixed = io("direct", Raw(), explore="paper")
    for _ in range(4):
        assert mixed.save({"a": torch.ones(3)}, tmp_path / "x").tool == "direct"
    with pytest.raises(ferry.InvalidInput, match="raw can't write this object"):
        io("direct", Raw(), tool="raw").save({"a": 1}, tmp_path / "x")


def test_what_it_wrote_is_read_in_another_process_by_who_has_it(tmp_path: Path) -> None:
    io(Raw()).save(bytes_of(1000), tmp_path / "x")
    code = f"""
        import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_added_tools import Raw, bytes_of, io
        assert io("direct", Raw()).load(sys.argv[1]).equal(bytes_of(1000))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), tmp_path / "x"], check=True)
    with pytest.raises(ferry.Corrupt):
        ferry.load(tmp_path / "x")


def test_files_of_one_format_are_read_by_every_tool_of_it(tmp_path: Path) -> None:
    tensor = torch.randn(500)
    np.save(tmp_path / "x.npy", tensor.numpy())
    mixed = io("numpy", Npy())
    for _ in range(3):
        assert torch.equal(mixed.load(tmp_path / "x.npy"), tensor)
    assert torch.equal(io("direct", Npy(), tool="npy").load(tmp_path / "x.npy"), tensor)
    io(Npy()).save(tensor, tmp_path / "y.npy")
    assert torch.equal(ferry.load(tmp_path / "y.npy"), tensor)


def test_what_was_learned_with_it_is_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for tools in (("direct", Raw()), ("direct",)):
        kept = ferry.TensorIO(tools=tools)
        kept.save(bytes_of(100), tmp_path / "x")
        kept._chooser.keep()
    names = sorted(path.name for path in (tmp_path / "cache/tensorferry/tools").iterdir())
    assert [name.split("-", 1)[1] for name in names] == ["rule-w-None-raw.json", "rule-w-None.json"]


def test_a_save_that_fails_leaves_the_old_file_and_says_which_tool(tmp_path: Path) -> None:
    class Broken(Raw):
        name = "broken"

        def save(self, obj: Any, path: str) -> None:
            Path(path).write_bytes(b"half")
            raise ValueError("no more tape")

        def load(self, path: str, map_location: Any) -> Any:
            raise KeyError("where")

    (tmp_path / "x").write_bytes(b"old")
    broken = io(Broken(), tool="broken")
    with pytest.raises(ferry.Io, match="the tool 'broken' can't save: ValueError: no more tape"):
        broken.save(bytes_of(10), tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    Raw().save(bytes_of(10), str(tmp_path / "y"))
    with pytest.raises(ferry.Corrupt, match="the tool 'broken' can't load the file: KeyError"):
        broken.load(tmp_path / "y")
    with pytest.raises(ferry.Unsupported, match="the tool 'broken' maps no files"):
        broken.load(tmp_path / "y", mmap=True)


def test_a_tool_that_writes_nothing_is_found_out(tmp_path: Path) -> None:
    class Idle(Raw):
        name = "idle"

        def save(self, obj: Any, path: str) -> None:
            pass

    with pytest.raises(ferry.Io, match="the tool 'idle' has written nothing"):
        io(Idle()).save(bytes_of(10), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def named(name: Any, form: Any = "") -> Tool:
    """A tool of this name and format."""

    class Named(Raw):
        pass

    Named.name, Named.format = name, form
    return Named()


class Unfinished(Tool):
    """Only a name."""

    name = "unfinished"


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ((7,), "tools are names, or objects of classes of ferry.Tool, not int: 7"),
        ((Raw,), "objects of classes of ferry.Tool, not type"),
        (("pigeon",), "'pigeon' is no tool"),
        ((Unfinished(),), "the tool 'unfinished' has no method 'save'"),
        ((Raw(), Raw()), "two tools have the name 'raw'; rename one"),
        ((named("direct"),), 'the name "direct" is taken; give the tool another one'),
        ((named("auto"),), 'the name "auto" is taken'),
        ((named(""),), '"" is no name for a tool'),
        ((named("a/b"),), '"a/b" is no name for a tool; use up to 64 letters'),
        ((named(None),), "the name of Named is a text, not None"),
        ((named("odd", 3),), "the format of Named is a text, not 3"),
        ((named("odd", "tape"),), '"tape" is no format; choose "safetensors"'),
        ((Raw(), named("raw", "numpy")), "taken by a tool of another format"),
    ],
)
def test_a_tool_that_makes_no_sense_is_an_error_at_once(tools: Any, message: str) -> None:
    with pytest.raises(ferry.InvalidInput, match=message):
        io(*tools)


def test_a_reason_to_refuse_is_a_text(tmp_path: Path) -> None:
    class Odd(Raw):
        name = "odd-one"

        def refuses(self, obj: Any) -> Any:
            return False

    with pytest.raises(ferry.InvalidInput, match="'odd-one' gives a reason or None, not False"):
        io(Odd()).save(bytes_of(3), tmp_path / "x")


def test_parts_are_chosen_as_of_any_file(tmp_path: Path) -> None:
    class Text(Tool):
        name = "text"

        def save(self, obj: Any, path: str) -> None:
            Path(path).write_text(json.dumps(obj))

        def load(self, path: str, map_location: Any) -> Any:
            return json.loads(Path(path).read_text())

    text = io(Text())
    text.save({"a": {"b": 1}, "c": 2}, tmp_path / "x")
    assert text.load(tmp_path / "x", keys=["a.b"]) == {"a.b": 1}
