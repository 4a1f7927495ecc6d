"""The dictionary that chooses tools."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from children import HANG_SECONDS, started

import tensorferry as ferry

WRITERS = ["direct", "buffered", "torch", "numpy"]


def tool_of(path: Path) -> str:
    """The format of a file, by the way it starts."""
    first = path.read_bytes()[:9]
    if first.startswith(b"PK"):
        return "torch"
    if first.startswith(b"\x93NUMPY"):
        return "numpy"
    assert first[8:] == b"{"
    return "safetensors"


@pytest.mark.parametrize("tool", WRITERS)
def test_one_tool_is_used_for_everything(tmp_path: Path, tool: str) -> None:
    io = ferry.TensorIO(tool=tool)
    tensor = torch.randn(1000)
    assert io.save(tensor, tmp_path / "x").tool == tool
    assert torch.equal(io.load(tmp_path / "x"), tensor)
    assert tool_of(tmp_path / "x") == (tool if tool in ("torch", "numpy") else "safetensors")
    rows = io.report().rows
    assert {row["situation"] for row in rows} >= {"durable"}
    assert all(row["operations"] == 1 for row in rows)


def test_the_users_own_dictionary_decides_by_the_nearest_size(tmp_path: Path) -> None:
    own = {"1024": "numpy", "1048576": "torch", "16777216": "direct"}
    (tmp_path / "own.json").write_text(json.dumps(own))
    for dictionary in (own, tmp_path / "own.json"):
        io = ferry.TensorIO(dictionary=dictionary)
        for size, expected in [(256, "numpy"), (2 << 18, "torch"), (8 << 20, "direct")]:
            assert io.save(torch.zeros(size), tmp_path / "x").tool == expected
            assert io.load(tmp_path / "x").numel() == size


def test_the_published_algorithm_tries_each_tool_once_for_each_size_and_keeps_the_best(
    tmp_path: Path,
) -> None:
    io = ferry.TensorIO(goal="w", explore="paper", persist=False)
    tensor = torch.randn(5000)
    used = [io.save(tensor, tmp_path / "x", durable=False).tool for _ in range(4)]
    assert sorted(used) == sorted(WRITERS)
    table = io.dictionary()["WDic"][str(tensor.nbytes)]
    best = min(table["times"], key=lambda tool: table["times"][tool])
    assert table["best"] == best
    assert {io.save(tensor, tmp_path / "x", durable=False).tool for _ in range(5)} == {best}
    io.flush()
    assert sorted(io.save(tensor, tmp_path / "x", durable=False).tool for _ in range(4)) == sorted(
        WRITERS
    )


def test_reading_completes_the_dictionaries_of_reading_and_of_both(tmp_path: Path) -> None:
    io = ferry.TensorIO(goal="w+r", explore="paper", persist=False)
    tensor = torch.randn(5000)
    for _ in range(4):
        io.save(tensor, tmp_path / "x")
        assert torch.equal(io.load(tmp_path / "x"), tensor)
    io.load(tmp_path / "x")
    tables = io.dictionary()
    for name in ("WDic", "RDic", "WRDic"):
        entry = tables[name][str(tensor.nbytes)]
        assert sorted(entry["times"]) == sorted(WRITERS)
        assert entry["best"] in WRITERS
    io.save(tensor, tmp_path / "x")
    assert io.load(tmp_path / "x").numel() == 5000


def test_an_update_frequency_starts_the_exploration_anew(tmp_path: Path) -> None:
    tensor = torch.randn(100)
    io = ferry.TensorIO(explore="paper", update_every=6, persist=False)
    used = [io.save(tensor, tmp_path / "x", durable=False).tool for _ in range(12)]
    assert sorted(used[:4]) == sorted(used[6:10]) == sorted(WRITERS)
    io = ferry.TensorIO(explore="paper", update_every="epoch", persist=False)
    for _ in range(2):
        used = [io.save(tensor, tmp_path / "x", durable=False).tool for _ in range(4)]
        assert sorted(used) == sorted(WRITERS)
        io.epoch()


def test_only_tools_that_can_keep_an_object_are_tried(tmp_path: Path) -> None:
    io = ferry.TensorIO(explore="paper", persist=False)
    state = {"a": torch.randn(10), "b": b"bytes", "c": {1, 2}}
    used = {io.save(state, tmp_path / "x", durable=False).tool for _ in range(6)}
    assert used == {"direct", "buffered"}
    assert io.load(tmp_path / "x")["c"] == {1, 2}


def test_every_choice_can_be_loaded_and_is_told_by_situation(tmp_path: Path) -> None:
    io = ferry.TensorIO(goal="w+r", persist=False)
    for number in range(60):
        tensor = torch.full((1 + 1000 * (number % 3),), number)
        io.save(tensor, tmp_path / "x", durable=number % 2 == 0)
        assert torch.equal(io.load(tmp_path / "x"), tensor)
    report = io.report()
    assert sum(row["operations"] for row in report.rows) == 120
    for row in report.rows:
        assert 0 < row["oracle_share_estimated"] <= 1.001
        assert row["bandwidth"] > 0
        assert row["cpu_seconds"] >= 0
    assert {row["situation"] for row in report.rows} > {"durable", "relaxed"}
    assert "IOef" in str(report)
    assert "best" in str(report)


def test_what_was_learned_is_kept_for_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = ferry.TensorIO(explore="paper")
    tensor = torch.randn(10)
    used = {first.save(tensor, tmp_path / "x", durable=False).tool for _ in range(2)}
    first._chooser.keep()
    kept = list((tmp_path / "cache" / "tensorferry" / "tools").iterdir())
    assert [path.suffix for path in kept] == [".json"]
    second = ferry.TensorIO(explore="paper")
    used |= {second.save(tensor, tmp_path / "x", durable=False).tool for _ in range(2)}
    assert used == set(WRITERS)
    # What is damaged is learned again.
    kept[0].write_text("{}")
    third = ferry.TensorIO(explore="paper")
    assert {third.save(tensor, tmp_path / "x", durable=False).tool for _ in range(4)} == used


def test_ferry_save_keeps_to_the_format_that_everybody_reads(tmp_path: Path) -> None:
    for _ in range(30):
        ferry.save(torch.randn(10), tmp_path / "x", durable=False)
        assert tool_of(tmp_path / "x") == "safetensors"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tool": "pigeon"}, '"pigeon" is no tool'),
        ({"goal": "fast"}, '"fast" is no goal'),
        ({"explore": "luck"}, '"luck" is no way to explore'),
        ({"update_every": 0}, "would never learn"),
        ({"update_every": "day"}, "update_every is a number"),
        ({"tool": "direct", "dictionary": {}}, "a tool or a dictionary"),
        ({"dictionary": {"10": "pigeon"}}, "pigeon"),
        ({"dictionary": {"10": "mapped"}}, "mapped"),
        ({"dictionary": {"-3": "direct"}}, "-3"),
        ({"dictionary": {"ten": "direct"}}, "ten"),
    ],
)
def test_mistakes_in_the_arguments_show_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ferry.InvalidInput, match=message):
        ferry.TensorIO(**arguments)


def test_one_rank_gives_what_it_has_learned_to_all(tmp_path: Path) -> None:
    code = textwrap.dedent(
        """
        import json, os, sys, torch, torch.distributed as dist, tensorferry as ferry
        rank, path = int(sys.argv[1]), sys.argv[2]
        store = dist.FileStore(path + "/store", 2)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        io = ferry.TensorIO(explore="paper", persist=False)
        if rank == 0:
            for _ in range(4):
                io.save(torch.randn(64), path + "/x", durable=False)
        io.broadcast()
        print(json.dumps(io.dictionary(path + "/x")))
        dist.destroy_process_group()
        """
    )
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    with contextlib.ExitStack() as stack:
        ranks = [
            stack.enter_context(
                started(
                    *(sys.executable, "-c", code, str(rank), str(tmp_path)),
                    stdout=subprocess.PIPE,
                    env=environment,
                )
            )
            for rank in range(2)
        ]
        tables = [json.loads(rank.communicate(timeout=HANG_SECONDS)[0]) for rank in ranks]
    assert tables[0] == tables[1]
    assert sorted(tables[0]["WDic"]["256"]["times"]) == sorted(WRITERS)


def test_a_broadcast_without_a_process_group_says_what_to_do() -> None:
    with pytest.raises(ferry.InvalidInput, match="call init_process_group first"):
        ferry.TensorIO().broadcast()


def test_a_load_that_reads_nothing_tells_nothing_about_a_tool(tmp_path: Path) -> None:
    io = ferry.TensorIO(persist=False)
    io.save(torch.randn(1 << 18), tmp_path / "x")
    io.load(tmp_path / "x")
    known = io.report().rows
    assert io.load(tmp_path / "x", map_location="meta").is_meta
    assert io.load(tmp_path / "x", mmap=True).numel() == 1 << 18
    assert io.report().rows == known


def test_saves_of_several_ranks_are_learned_from(tmp_path: Path) -> None:
    from tensorferry._checkpoint.chooser import default

    def writes() -> int:
        dictionary = default("auto", "w").of(str(tmp_path))
        assert dictionary is not None
        rows = json.loads(dictionary.report()[0])["rows"]
        return sum(tool["operations"] for row in rows for tool in row["tools"].values())

    before, saves = writes(), 3
    for _ in range(saves):
        for rank in range(2):
            ferry.save({"a": torch.randn(1000)}, tmp_path / "x", rank=rank, world_size=2)
    assert writes() - before == 2 * saves


@pytest.mark.parametrize("every", [True, False, 0, -1, 1 << 70, 1.0, "2", "always", [1]])
def test_update_every_is_a_number_of_operations(every: Any) -> None:
    with pytest.raises(ferry.InvalidInput, match="update_every"):
        ferry.TensorIO(update_every=every)


def test_a_disk_that_is_mounted_later_has_a_dictionary_of_its_own(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "small").mkdir()
    io = ferry.TensorIO(persist=False)
    state = {"weight": torch.ones(1000)}
    io.save(state, tmp_path / "small" / "saved")
    io.load(tmp_path / "small" / "saved")
    (tmp_path / "small" / "saved").unlink()
    (tmp_path / "small").rmdir()
    request.getfixturevalue("small_disk")
    io.save(state, tmp_path / "small" / "saved")
    io.load(tmp_path / "small" / "saved")
    names = sorted(name.split(" on ")[0] for name in io._chooser.by_mount)
    assert len(names) == 2
    assert names[1] == "tmpfs (tmpfs)"


def counts(situation: str) -> int:
    """Operations of ``save_async`` in a situation, on the file systems that it has met."""
    from tensorferry._checkpoint.chooser import behind

    reports = [json.loads(each.report()[0]) for each in behind().by_mount.values()]
    rows = [row for report in reports for row in report["rows"]]
    return sum(row["operations"] for row in rows if row["situation"] == situation)


@pytest.mark.parametrize("durable", [True, False])
def test_a_save_behind_its_caller_is_chosen_and_learned_from(tmp_path: Path, durable: bool) -> None:
    from tensorferry._checkpoint.mounts import MOUNTS

    in_memory = MOUNTS.of(str(tmp_path / "x")).in_memory
    situation = "durable" if durable and not in_memory else "relaxed"
    before = counts(situation)
    job = ferry.save_async(torch.randn(100_000), tmp_path / "x", durable=durable)
    assert job.wait().tool in ("direct", "buffered")
    assert counts(situation) == before + 1
    job.wait()
    assert counts(situation) == before + 1, "once"
    ferry.save_async(torch.randn(10), tmp_path / "x", tool="buffered", durable=durable).wait()
    assert counts(situation) == before + 1, "who names a tool teaches nothing"


def test_of_saves_that_share_a_disk_only_the_first_is_learned_from(tmp_path: Path) -> None:
    state = torch.randn(1 << 20)
    before = counts("durable") + counts("relaxed")
    jobs = [ferry.save_async(state, tmp_path / "x") for _ in range(3)]
    for job in jobs:
        job.wait()
    assert before < counts("durable") + counts("relaxed") <= before + 3


def test_the_old_name_of_the_rule_is_known(tmp_path: Path) -> None:
    for name in ("rule", "bandit"):
        io = ferry.TensorIO(explore=name, persist=False)
        assert io.save(torch.ones(3), tmp_path / name).tool in WRITERS


def test_a_file_system_in_memory_is_one_on_which_nothing_is_durable(
    tmp_path: Path, small_disk: Path
) -> None:
    io = ferry.TensorIO(persist=False)
    io.save(torch.ones(100), small_disk / "x", durable=True)
    io.load(small_disk / "x")
    assert [row["situation"] for row in io.report().rows] == ["relaxed", "warm"]


def test_a_plain_save_and_load_do_not_walk_through_what_is_for_several_ranks(
    tmp_path: Path,
) -> None:
    code = """
        import sys, torch, tensorferry as ferry
        ferry.save({"a": torch.ones(3)}, sys.argv[1])
        ferry.save_async({"a": torch.ones(3)}, sys.argv[1]).wait()
        ferry.load(sys.argv[1])
        assert not [name for name in sys.modules if "_checkpoint.ranks" in name]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), tmp_path / "x"], check=True)
