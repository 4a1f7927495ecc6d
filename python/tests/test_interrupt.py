"""Control-C is heard while the core works and waits, and leaves nothing half-written.

The disk takes an hour for each transfer, so that whatever is heard at all was heard in time.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PREPARE = """
import os, random, signal, sys, threading, time
import torch
import tensorferry as ferry
from tensorferry import _lib
torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)

def the_disk_stops(after=0):
    _lib._delay_for_tests(3600.0, after)

def the_disk_goes_on():
    _lib._delay_for_tests(0.0, 0)

the_disk_goes_on()
old = {"weight": torch.zeros(7 << 20), "small": torch.zeros(3)}
state = {"weight": torch.arange(14 << 20), "small": torch.ones(3), "list": [torch.ones(300_000)]}
ferry.save(old, "old")
ferry.save(old, "saved")
there = sorted(os.listdir())
# An engine that is let go of ends what it has begun.
file = ferry.Engine().open("old")

def interrupted(work, after=0):
    "Work is interrupted at some moment."
    the_disk_stops(after)
    def press():
        time.sleep(random.random() / 4)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    sent = []
    threading.Thread(target=press).start()
    try:
        work()
        while True:
            time.sleep(0.01)
    except KeyboardInterrupt:
        heard = time.monotonic() - sent[0]
    assert sorted(os.listdir()) == there, os.listdir()
    the_disk_goes_on()
    print(f"heard after {heard:.3f} s")

def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in ("weight", "small"))
"""

GOES_ON = """
assert same(ferry.load("saved"), old)
ferry.save(state, "saved")
assert same(ferry.load("saved"), state)
ferry.save_async(old, "saved").wait()
assert same(ferry.load("saved", tool="direct"), old)
assert sorted(os.listdir()) == there, os.listdir()
"""

SAVES = {
    "save": 'ferry.save(state, "saved")',
    "save through the page cache": 'ferry.save(state, "saved", tool="buffered")',
    "a small save": 'ferry.save({"small": torch.ones(3)}, "saved")',
    "save_async": 'ferry.save_async(state, "saved", staging="8MiB")',
    "TensorIO": 'ferry.TensorIO(tools=("direct",)).save(state, "saved")',
    "with torch": 'ferry.save(state, "saved", tool="torch")',
    "a rank": 'ferry.save(state, "saved", rank=0, world_size=1)',
}

LOADS = {
    "load": 'ferry.load("old", tool="direct")',
    "load through the page cache": 'ferry.load("old", tool="buffered")',
    "TensorIO": 'ferry.TensorIO(tools=("direct",)).load("old")',
    "safe_open": 'ferry.safe_open("old").get_tensor("weight")',
    "Engine": "file.read().wait()",
    "more reads than are let in": "[file.read(512) for _ in range(10_000)]",
}


def run(script: str, folder: Path, *, goes_on: bool = True) -> None:
    script = PREPARE + textwrap.dedent(script) + (GOES_ON if goes_on else "")
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"


def as_function(work: str) -> str:
    return "def work():\n" + textwrap.indent(textwrap.dedent(work).strip(), "    ") + "\n"


@pytest.mark.parametrize("work", SAVES)
def test_a_save_hears_an_interruption_and_leaves_the_old_file_alone(
    work: str, tmp_path: Path
) -> None:
    # Some are done with one transfer.
    moments = (0,) if work in ("a small save", "with torch") else (0, 1, 9)
    script = as_function(SAVES[work]) + textwrap.dedent(f"""
    for after in {moments}:
        interrupted(work, after)
    """)
    run(script, tmp_path)


@pytest.mark.parametrize("work", LOADS)
def test_a_load_hears_an_interruption_and_can_be_done_again(work: str, tmp_path: Path) -> None:
    script = as_function(LOADS[work]) + textwrap.dedent("""
    for after in (0, 2):
        interrupted(work, after)
    """)
    run(script, tmp_path)


COPIES = {
    "a save of a tensor out of order": 'ferry.save({"a": old["weight"].view(7, -1).t()}, "saved")',
    "a save of an array": 'ferry.save({"a": old["weight"].view(7, -1).numpy().T}, "saved")',
    "save_async": 'ferry.save_async({"a": old["weight"].view(7, -1).t()}, "saved")',
    "a load of views": 'ferry.load("views")',
    "a load of mapped views": 'ferry.load("views", mmap=True)',
    "a load in another order of bytes": 'ferry.load("other.npy")',
    "a save with NumPy": 'ferry.save(old["weight"], "saved", tool="numpy")',
}


@pytest.mark.parametrize("work", COPIES)
def test_a_copy_hears_an_interruption(work: str, tmp_path: Path) -> None:
    """Copies never end here: what is heard was heard between two pieces."""
    run(
        as_function(COPIES[work])
        + textwrap.dedent("""
        import numpy as np
        from tensorferry._checkpoint import tools
        from tensorferry._structure import pieces as module

        rows = torch.ones(2048, 64)
        ferry.save({"a": rows[:, ::2], "b": rows[:, 1::2]}, "views")
        np.save("other.npy", np.ones(9, ">f4"))
        there = sorted(os.listdir())
        pieces = module.pieces

        def endless(shape, itemsize, most=4096):
            while True:
                first = next(iter(pieces(shape, itemsize, most)))
                yield first

        module.pieces = endless
        tools.pieces = lambda shape, itemsize: ((slice(0, 0),) for _ in iter(int, 1))
        interrupted(work, 1_000_000)
        module.pieces = tools.pieces = pieces
        """),
        tmp_path,
    )


def test_waiting_for_a_job_hears_an_interruption_and_the_job_goes_on(tmp_path: Path) -> None:
    run(
        """
        the_disk_stops()
        job = ferry.save_async(state, "saved")
        there = sorted(os.listdir())
        interrupted(job.wait)
        job.wait()
        there = ["old", "saved"]
        assert same(ferry.load("saved"), state)
        ferry.save(old, "saved")
        """,
        tmp_path,
    )


def test_a_save_that_waits_for_an_earlier_one_of_its_path_hears_an_interruption(
    tmp_path: Path,
) -> None:
    run(
        """
        the_disk_stops()
        job = ferry.save_async(state, "saved")
        there = sorted(os.listdir())
        interrupted(lambda: ferry.save(old, "saved", durable=False))
        job.wait()
        there = ["old", "saved"]
        ferry.save(old, "saved")
        """,
        tmp_path,
    )


def test_what_is_interrupted_gives_its_memory_back(tmp_path: Path) -> None:
    run(
        """
        def used():
            with open("/proc/self/status") as file:
                fields = dict(line.split(":", 1) for line in file)
            return int(fields["RssAnon"].split()[0]) << 10

        def save():
            ferry.save_async(state, "saved", staging="64MiB")

        interrupted(save, 2)
        before = used()
        for _ in range(4):
            interrupted(save, 2)
            interrupted(lambda: ferry.load("old", tool="direct"), 2)
        until = time.monotonic() + 120
        while used() > before + (24 << 20):
            assert time.monotonic() < until, (used(), before)
            time.sleep(0.1)
        """,
        tmp_path,
    )


def test_a_step_of_an_optimizer_is_taken_to_its_end_and_handlers_have_their_turn(
    tmp_path: Path,
) -> None:
    """Half a step would be a lost state. Who insists is heard at once, and later steps say so."""
    run(
        """
        os.mkdir("scratch")
        weight = torch.nn.Parameter(torch.ones(3 << 20))
        optimizer = ferry.optim.AdamW([weight], state="ssd:scratch")
        weight.grad = torch.ones_like(weight)
        optimizer.step()

        def handle(number, frame):
            try:
                optimizer.state_dict()
            except ferry.InvalidInput as error:
                refused.append(str(error))
            the_disk_goes_on()
            raise KeyboardInterrupt

        refused = []
        signal.signal(signal.SIGUSR1, handle)
        the_disk_stops()
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        try:
            optimizer.step()
            raise AssertionError("not heard")
        except KeyboardInterrupt:
            pass
        assert len(refused) == 1 and "in the middle of a step" in refused[0], refused
        optimizer.step()
        state = optimizer.state_dict()["state"][0]
        assert float(state["step"]) == 3, state["step"]

        def insist(number, frame):
            pressed.append(number)
            if len(pressed) == 1:
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            else:
                # What is under way ends before anything else is written.
                the_disk_goes_on()
            raise KeyboardInterrupt

        pressed = []
        signal.signal(signal.SIGINT, insist)
        the_disk_stops()
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            optimizer.step()
            raise AssertionError("not heard")
        except KeyboardInterrupt:
            assert len(pressed) == 2
        try:
            optimizer.step()
            raise AssertionError("half a step is passed over in silence")
        except ferry.Error as error:
            assert "interrupted" in str(error), error
        """,
        tmp_path,
        goes_on=False,
    )
