"""The soak: its judges notice what they are there for, and each path runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN_SECONDS_MAX = 500

PREAMBLE = """
import ctypes, os, random, signal, sys, time
from pathlib import Path
from soak import child, session, stage
from soak.failure import Failure
from soak.stage import Stage
session.GOING_SECONDS = 0.5
place = Path(sys.argv[1])

def judged(scenario):
    with Stage(place / "scenario", random.Random(0)) as here:
        scenario(here)
"""


def judge(tmp_path: Path, scenario: str) -> str:
    """What a scenario is judged to be. In a process of its own: it forks."""
    code = f"""{PREAMBLE}
{textwrap.dedent(scenario)}
try:
    judged(scenario)
    print("fine")
except Failure as failure:
    print(failure.kind, failure, sep=": ")
"""
    return run(["-c", code, str(tmp_path)])


def run(arguments: list[str], **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_work_that_ends_gives_its_result_and_leaves_nothing(tmp_path: Path) -> None:
    scenario = """
    def work(tell, number):
        tell("begun")
        return number + 1
    def scenario(stage):
        assert stage.run(work, number=4) == 5
    """
    assert judge(tmp_path, scenario) == "fine\n"
    assert list(tmp_path.iterdir()) == []


def test_a_child_without_a_word_hangs_and_shows_where(tmp_path: Path) -> None:
    scenario = """
    def work(tell):
        tell("begun")
        time.sleep(1000)
    def scenario(stage):
        begun = stage.start(work)
        begun.wait_for("begun")
        child.PATIENCE_SECONDS = 0.5
        begun.result()
    """
    told = judge(tmp_path, scenario)
    assert told.startswith("hang: ")
    assert "in work" in told


def test_the_time_for_which_a_child_is_stopped_is_none_without_a_word(tmp_path: Path) -> None:
    scenario = """
    def work(tell):
        tell("begun")
        time.sleep(1000)
    def scenario(stage):
        begun = stage.start(work)
        begun.wait_for("begun")
        begun._heard_at -= 2 * child.PATIENCE_SECONDS
        begun.pause(0.01)
        begun._listen_for(0.01)
    """
    assert judge(tmp_path, scenario) == "fine\n"


@pytest.mark.parametrize("by", ["SIGSEGV", "SIGKILL"])
def test_a_signal_that_nobody_has_sent_is_a_crash(tmp_path: Path, by: str) -> None:
    scenario = f"""
    def work(tell):
        os.kill(os.getpid(), signal.{by})
    def scenario(stage):
        stage.run(work)
    """
    assert judge(tmp_path, scenario).startswith("crash: ")


def test_an_exception_is_unclear_unless_the_scenario_expects_it(tmp_path: Path) -> None:
    scenario = """
    def work(tell):
        {}["missing"]
    def scenario(stage):
        assert stage.run(work, "LookupError") == "LookupError"
        stage.run(work, "OSError")
    """
    assert "unclear error: __main__.work raised builtins.KeyError" in judge(tmp_path, scenario)


def test_a_process_that_outlives_its_parent_is_left_over(tmp_path: Path) -> None:
    scenario = """
    def work(tell):
        if os.fork() == 0:
            time.sleep(1000)
    def scenario(stage):
        stage.run(work)
    """
    assert judge(tmp_path, scenario).startswith("leftover: processes of ")


def test_files_that_nobody_expects_are_left_over(tmp_path: Path) -> None:
    scenario = """
    def scenario(here):
        directory = here.directory()
        (directory / "model").touch()
        stage.only(directory, {"model"})
        (directory / "draft").touch()
        stage.only(directory, {"model"})
    """
    assert "['draft']" in judge(tmp_path, scenario)


def test_shared_memory_that_stays_is_left_over(tmp_path: Path) -> None:
    scenario = """
    stage.SHARED = place
    def work(tell):
        (place / "psm_0").touch()
    def scenario(here):
        here.run(work)
    """
    assert "leftover: " in judge(tmp_path, scenario)


def test_memory_files_and_threads_that_grow_are_noticed(tmp_path: Path) -> None:
    for name, more in (("memory", 3 << 20), ("files", 1), ("threads", 1)):
        scenario = f"""
        def scenario(stage):
            equal = dict(memory=100 << 20, files=9, threads=3)
            stage.steady([equal] * 60)
            stage.steady([equal | {{"{name}": equal["{name}"] + n * {more}}} for n in range(60)])
        """
        assert judge(tmp_path, scenario).startswith(f"growth: {name}"), name


def test_a_scenario_of_a_seed_is_the_same_whatever_came_before(tmp_path: Path) -> None:
    code = """
import sys
from soak.run import Plan
scenarios = dict.fromkeys("abcd")
plan = Plan("data", scenarios, 7)
drawn = [(kind, chance.random()) for _, kind, chance in plan.drawn(range(12))]
assert drawn[5:6] == [(kind, chance.random()) for _, kind, chance in plan.drawn([5])]
assert [sorted(kind for kind, _ in drawn[at : at + 4]) for at in (0, 4, 8)] == [list("abcd")] * 3
assert len(set(drawn)) == 12
only = Plan("data", scenarios, 7, "b")
numbers = [number for number, _, _ in only.drawn(range(12))]
assert [drawn[number][0] for number in numbers] == ["b"] * 3
other = Plan("data", scenarios, 8)
assert drawn != [(kind, chance.random()) for _, kind, chance in other.drawn(range(12))]
"""
    run(["-c", code])


def test_a_failure_is_counted_recorded_and_told_by_the_exit_code(tmp_path: Path) -> None:
    code = """
import json, sys, types
from pathlib import Path
from soak import __main__ as program
def work(tell):
    tell("begun", 3)
    raise ValueError("seven is not eight")
def bad(stage):
    stage.run(work)
def good(stage):
    stage.run(abs_of, number=-3)
def abs_of(tell, number):
    return abs(number)
module = types.ModuleType("soak.engine.scenarios")
module.SCENARIOS = {"bad": bad, "good": good}
sys.modules["soak.engine.scenarios"] = module
program.go_apart = lambda: None
place = sys.argv.pop()
sys.argv += ["--only", "engine", "--each", "--seed", "1", "--place", place, "--out", place]
assert program.main() == 1
"""
    told = run(["-c", code, str(tmp_path)])
    assert "| engine | bad | 0 | 1 | 0 |" in told
    assert "| engine | good | 1 | 0 | 0 |" in told
    result = json.loads((tmp_path / "engine.json").read_text())
    (failure,) = result["failures"]
    assert failure["failure"] == "unclear error"
    assert "seven is not eight" in failure["text"]
    assert "begun 3" in "\n".join(failure["transcript"])
    assert failure["again"].startswith("python -m soak --only engine --seed 1 --scenario ")


def test_each_path_holds_while_it_is_killed(tmp_path: Path) -> None:
    arguments = ["--kinds", "killed", "--minutes", "0", "--seed", "2"]
    places = ["--place", str(tmp_path), "--out", str(tmp_path)]
    # One thread: two that wait for each other by spinning are slow on a machine that is busy.
    run(["-m", "soak", *arguments, *places], OMP_NUM_THREADS="1")
    for path in ("checkpoint", "data", "activations", "parameters", "engine"):
        result = json.loads((tmp_path / f"{path}.json").read_text())
        assert (result["scenarios"], result["failures"]) == (1, [])
        assert result["saw"]["kills"] >= 1
