"""Who holds how much memory, and the limit that all of it stays within.

A limit is one of the whole process: so each test of one has a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tensorferry as ferry

MIB = 1 << 20

PREPARE = """
import gc, os, threading, time
import numpy as np
import torch
import tensorferry as ferry
from tensorferry.data import Files
torch.set_num_threads(2)
MIB = 1 << 20

def held(name):
    return {account.name: account.bytes for account in ferry.memory().accounts}.get(name, 0)

def resident():
    "Bytes of memory of this process that belong to no file."
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["RssAnon"].split()[0]) << 10

class Watched:
    "Looks all the time whether the limit holds."
    def __enter__(self):
        self.over, self.done = [], threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
    def look(self):
        while not self.done.wait(0.001):
            told = ferry.memory()
            if told.limit is not None and told.bytes + told.reserved_bytes > told.limit:
                self.over.append(str(told))
    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        assert not self.over, self.over[0]

def stored(count, kib):
    names = []
    for number in range(count):
        names.append(f"{number:03}.npy")
        np.save(names[-1], np.random.default_rng(number).integers(0, 255, kib << 10, np.uint8))
    return Files(names)

def on_disk():
    "An optimizer with 32 MiB of staging."
    weight = torch.nn.Parameter(torch.ones(9))
    weight.grad = torch.ones(9)
    optimizer = ferry.optim.AdamW([weight], state="ssd:.")
    optimizer.step()
    return optimizer

def values(loader, epochs=1):
    torch.manual_seed(7)
    taken = []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        taken.append([bytes(batch.numpy()) for batch in loader])
    return taken
"""


def run(script: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PREPARE + textwrap.dedent(script)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"


def test_memory_is_plain_data_that_adds_up_and_prints_well(tmp_path: Path) -> None:
    ferry.save({}, tmp_path / "saved")
    told = ferry.memory()
    assert told.bytes == sum(account.bytes for account in told.accounts)
    assert told.reserved_bytes == sum(account.reserved_bytes for account in told.accounts)
    names = [account.name for account in told.accounts]
    assert len(set(names)) == len(names) > 0
    assert "disk staging" in names
    assert told.limit is None
    assert told.usable_bytes
    assert told.available_bytes
    head, titles, *rows = str(told).splitlines()
    assert "no limit" in head
    assert titles.split() == [
        "account",
        "priority",
        "held",
        "reserved",
        "peak",
        "reclaimable",
    ]
    assert len(rows) == len(names)
    assert len({len(row) for row in [titles, *rows]}) == 1


def test_gauges_tell_the_same() -> None:
    series = {(one["name"], one["labels"].get("account")): one["value"] for one in ferry.metrics()}
    assert ("ferry_memory_held_bytes", "disk staging") in series
    assert series["ferry_memory_limit_bytes", None] == 0
    assert 'ferry_memory_reserved_bytes{account="disk staging"}' in ferry.prometheus()


@pytest.mark.parametrize(
    ("memory", "error", "words"),
    [
        ("lots", ferry.InvalidInput, "is not a size"),
        ("1MiB", ferry.InvalidInput, "a memory limit of 1 MiB is too low; give at least 16 MiB"),
        (0, ferry.InvalidInput, "give at least 16 MiB"),
        (-1, ferry.InvalidInput, "negative"),
        (True, TypeError, "a size is an int of bytes or a str"),
        (2.5, TypeError, "a size is an int of bytes or a str"),
    ],
)
def test_a_limit_that_makes_no_sense_is_an_error(
    memory: object, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        ferry.limit(memory=memory)  # type: ignore[arg-type]
    assert ferry.limit().memory is None


def test_a_limit_is_told_lifted_and_refused_below_what_is_needed(tmp_path: Path) -> None:
    script = """
    assert ferry.limit(memory="256MiB").memory == ferry.limit().memory == 256 * MIB
    optimizer = on_disk()
    try:
        ferry.limit(memory="24MiB")
    except ferry.InvalidInput as error:
        text = str(error)
        assert "24 MiB is less than the" in text and "optimizer staging 32 MiB" in text, text
    else:
        raise AssertionError("it was set")
    assert ferry.limit().memory == 256 * MIB
    assert ferry.limit(memory=None).memory is None
    """
    run(script, tmp_path)


def test_a_forked_process_has_no_limit(tmp_path: Path) -> None:
    script = """
    ferry.limit(memory="64MiB")
    child = os.fork()
    if child == 0:
        try:
            assert ferry.limit().memory is None
            try:
                ferry.limit(memory="32MiB")
            except ferry.Unsupported as error:
                assert "spawned" in str(error)
                os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
    run(script, tmp_path)


def test_saves_and_loads_of_more_than_the_limit_go_through_small_windows(tmp_path: Path) -> None:
    script = """
    ferry.limit(memory="24MiB")
    state = {str(n): torch.full((8 * MIB,), n, dtype=torch.float32) for n in range(6)}
    small = {"few": torch.arange(1000)}
    with Watched():
        ferry.save(state, "saved")
        job = ferry.save_async(state, "behind", staging="1GiB")
        job.wait()
        ferry.save(small, "small")
        for tool in ["direct", "buffered", None]:
            for path in ["saved", "behind"]:
                again = ferry.load(path) if tool is None else ferry.load(path, tool=tool)
                assert all(torch.equal(again[name], state[name]) for name in state)
                del again
        assert torch.equal(ferry.load("small")["few"], small["few"])
    peaks = {account.name: account.peak_bytes for account in ferry.memory().accounts}
    assert 0 < peaks["save staging"] <= 12 * MIB and 0 < peaks["load windows"] <= 8 * MIB, peaks
    """
    run(script, tmp_path)


def test_batches_are_the_same_under_a_small_limit(tmp_path: Path) -> None:
    """Also where two batches are all that fits."""
    script = """
    files = stored(48, 512)
    loader = ferry.DataLoader(files, 8, shuffle=True, num_workers=2, prefetch_factor=4)
    free = values(loader, 2)
    ferry.limit(memory="24MiB")
    with Watched():
        assert values(loader, 2) == free
        fresh = ferry.DataLoader(files, 8, shuffle=True, num_workers=2, prefetch_factor=4)
        assert values(fresh, 2) == free
    """
    run(script, tmp_path)


def test_a_cache_shrinks_for_those_who_need_memory_and_changes_no_batch(tmp_path: Path) -> None:
    script = """
    files = stored(64, 512)
    plain = values(ferry.DataLoader(files, 4, shuffle=True), 3)
    loader = ferry.DataLoader(files, 4, shuffle=True, cache_limit="32MiB")
    assert values(loader, 1) == plain[:1]
    assert 31 * MIB < held("data cache") <= 32 * MIB, ferry.memory()
    ferry.limit(memory="64MiB")
    assert 31 * MIB < held("data cache") <= 32 * MIB, ferry.memory()
    with Watched():
        optimizer = on_disk()
        assert 0 < held("data cache") < 32 * MIB, ferry.memory()
        assert values(loader, 3) == plain
        assert 0 < held("data cache") < 32 * MIB, ferry.memory()
    """
    run(script, tmp_path)


def test_what_is_kept_goes_before_the_cache(tmp_path: Path) -> None:
    script = """
    files = stored(16, 512)
    loader = ferry.DataLoader(files, 4, cache_limit="8MiB")
    values(loader)
    ferry.save({"large": torch.ones(24 * MIB // 4)}, "saved")
    ferry.load("saved")
    gc.collect()
    assert held("kept for the next load") >= 24 * MIB, ferry.memory()
    ferry.limit(memory="40MiB")
    assert held("kept for the next load") < 24 * MIB, ferry.memory()
    assert 7 * MIB < held("data cache") <= 8 * MIB, ferry.memory()
    """
    run(script, tmp_path)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ('ferry.ActivationOffload(".", budget="1GiB")', "activations would take 1 GiB"),
        ('ferry.DataLoader(stored(4, 1), cache_limit="1GiB")', "data cache would take 1 GiB"),
        ("on_disk()", "optimizer staging would take 32 MiB"),
        (
            "ferry.ShadowModel(*shadowed(), device='host')",
            "shadow parameters would take",
        ),
    ],
)
def test_what_could_never_fit_is_refused_before_work_begins(
    asked: str, words: str, tmp_path: Path
) -> None:
    script = f"""
    def shadowed():
        model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(4)))
        return model, ferry.optim.AdamW(model.parameters())
    def use(made):
        "What is made when it is first used."
        for _ in made if hasattr(made, "dataset") else ():
            break
    ferry.limit(memory="24MiB")
    try:
        use({asked})
    except ferry.OutOfMemory as error:
        assert {words!r} in str(error) and "raise the limit" in str(error), str(error)
    else:
        raise AssertionError(str(ferry.memory()))
    """
    run(script, tmp_path)


def test_a_batch_that_could_never_fit_says_so_at_once(tmp_path: Path) -> None:
    script = """
    loader = ferry.DataLoader(stored(8, 4 << 10), 8)
    ferry.limit(memory="24MiB")
    began = time.monotonic()
    try:
        next(iter(loader))
    except ferry.OutOfMemory as error:
        assert "batches would take 32 MiB" in str(error), str(error)
    else:
        raise AssertionError(str(ferry.memory()))
    """
    run(script, tmp_path)


def test_a_consumer_who_keeps_all_batches_is_told_that_they_take_the_memory(
    tmp_path: Path,
) -> None:
    script = """
    loader = ferry.DataLoader(stored(32, 1 << 10), 4, num_workers=2)
    ferry.limit(memory="24MiB")
    kept = []
    try:
        for batch in loader:
            kept.append(batch)
    except ferry.OutOfMemory as error:
        assert "leaves no room" in str(error) and "in use are batches" in str(error), str(error)
    else:
        raise AssertionError(str(ferry.memory()))
    del kept, batch
    assert len(values(loader)[0]) == 8, "nothing is left behind"
    """
    run(script, tmp_path)


def test_training_goes_on_while_a_save_behind_it_has_all_the_staging_it_gets(
    tmp_path: Path,
) -> None:
    script = """
    files = stored(32, 512)
    plain = values(ferry.DataLoader(files, 8), 2)
    ferry.limit(memory="48MiB")
    state = {"weight": torch.ones(64 * MIB)}
    with Watched():
        job = ferry.save_async(state, "saved", staging="1GiB")
        assert values(ferry.DataLoader(files, 8), 2) == plain
        job.wait()
    """
    run(script, tmp_path)


GROWN = {
    "batches": """
    files = stored(32, 2 << 10)
    def work():
        return list(ferry.DataLoader(files, 8))
    """,
    "data cache": """
    files = stored(32, 2 << 10)
    loader = ferry.DataLoader(files, 2, cache_limit="64MiB")
    def work():
        for batch in loader:
            pass
        return loader
    """,
    "save staging": """
    state = {"weight": torch.ones(16 * MIB)}
    def work():
        ferry.save_async(state, "saved", staging="64MiB", durable=False).wait()
    """,
    "kept for the next load": """
    state = {"weight": torch.ones(16 * MIB)}
    ferry.save(state, "saved")
    def work():
        ferry.load("saved", tool="direct")
        gc.collect()
    """,
    "optimizer state": """
    def work(elements=8 * MIB):
        weight = torch.nn.Parameter(torch.ones(elements))
        weight.grad = torch.ones_like(weight)
        optimizer = ferry.optim.AdamW([weight])
        optimizer.step()
        weight.data, weight.grad = torch.ones(0), None
        return optimizer
    work(9)
    """,
    "shadow parameters": """
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    # The memory that is given up when parameters move.
    stays = [parameter.detach() for parameter in model.parameters()]
    def work():
        return ferry.ShadowModel(model, optimizer, device="host")
    """,
}


@pytest.mark.parametrize("account", GROWN)
def test_the_account_that_grows_is_the_right_one_and_as_large_as_the_process(
    account: str, tmp_path: Path
) -> None:
    """What a path has taken is counted under its name; what the process has grown by is what all
    accounts have, give or take."""
    prepared = textwrap.dedent(GROWN[account])
    judged = textwrap.dedent(f"""
    gc.collect()
    before, counted = resident(), ferry.memory().bytes
    kept = work()
    grown, told = resident() - before, ferry.memory()
    counted = told.bytes - counted
    most = max(told.accounts, key=lambda one: one.bytes)
    assert most.name == {account!r} and most.bytes >= 32 * MIB, told
    low, high = counted - 24 * MIB, counted + 48 * MIB
    assert low <= grown <= high, f"{{grown / MIB}} of {{counted / MIB}}: {{told}}"
    """)
    run(prepared + judged, tmp_path)


def test_activations_are_counted_as_they_are_held(tmp_path: Path) -> None:
    script = """
    offload = ferry.ActivationOffload(".", budget="32MiB")
    layers = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(24)))
    most = 0
    for _ in range(2):
        with offload:
            loss = layers(torch.ones(1024, 512)).sum()
        most = max(most, held("activations"))
        loss.backward()
    told = {account.name: account for account in ferry.memory().accounts}
    activations = told["activations"]
    assert activations.bytes + activations.reserved_bytes == 32 * MIB, ferry.memory()
    assert 16 * MIB < most <= activations.peak_bytes <= 32 * MIB, ferry.memory()
    del offload, loss
    gc.collect()
    assert held("activations") == 0, ferry.memory()
    """
    run(script, tmp_path)
