"""What every engine must keep to; a new engine joins ``ENGINES``."""

from __future__ import annotations

import atexit
import functools
import gc
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import threads_of_loaders
from data_cases import Numbers

import tensorferry as ferry
from tensorferry._data.engine import Engine, EngineStats, Run
from tensorferry.data import Files


def _engine_of(loader: ferry.DataLoader) -> Engine:
    return loader._engine


@functools.cache
def _stored_numbers() -> Files:
    """Files of which number i holds i."""
    directory = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, directory)
    for number in range(100):
        np.save(directory / f"{number:03}.npy", np.array(number))
    return Files(str(directory / "*.npy"))


FOUR = {"batch_size": 4}

ENGINES: dict[str, Callable[..., Engine]] = {
    "caller": lambda **o: _engine_of(ferry.DataLoader(Numbers(100), num_workers=0, **(FOUR | o))),
    "threads": lambda **o: _engine_of(
        ferry.DataLoader(Numbers(100), num_workers=3, workers="threads", **(FOUR | o))
    ),
    "persistent threads": lambda **o: _engine_of(
        ferry.DataLoader(
            Numbers(100),
            num_workers=3,
            workers="threads",
            persistent_workers=True,
            **(FOUR | o),
        )
    ),
    "processes": lambda **o: _engine_of(
        ferry.DataLoader(Numbers(100), num_workers=2, **(FOUR | o))
    ),
    "persistent processes": lambda **o: _engine_of(
        ferry.DataLoader(Numbers(100), num_workers=2, persistent_workers=True, **(FOUR | o))
    ),
    "core": lambda **o: _engine_of(
        ferry.DataLoader(_stored_numbers(), num_workers=3, **(FOUR | o))
    ),
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    made = ENGINES[request.param]()
    yield made
    made.close()


def begin(engine: Engine, epoch: int = 0) -> Run:
    return engine.begin(epoch, seed=0, base_seed=0)


def take(run: Run) -> Any:
    batch = run.next(60.0)
    assert batch.error is None
    return batch.number, batch.data.tolist(), batch.samples


def test_batches_come_in_the_order_of_submission(engine: Engine) -> None:
    run = begin(engine)
    submitted = [[number, 99 - number][: 1 + number % 2] for number in range(20)]
    for indices in submitted[:8]:
        run.submit(indices)
    for number, indices in enumerate(submitted):
        assert take(run) == (number, indices, len(indices))
        if number + 8 < len(submitted):
            run.submit(submitted[number + 8])
    run.close()


@pytest.mark.parametrize(
    "make", [ENGINES[name] for name in ("caller", "threads", "processes", "core")]
)
@pytest.mark.parametrize("collate_fn", [None, lambda samples: torch.tensor(samples)])
def test_batches_of_a_batch_sampler_are_whole(make: Callable[..., Engine], collate_fn: Any) -> None:
    batches = [[5, 3, 4], [7], [1, 2]]
    engine = make(batch_size=1, batch_sampler=batches, collate_fn=collate_fn)
    run = begin(engine)
    for indices in batches:
        run.submit(indices)
    assert [take(run) for _ in batches] == [(i, b, len(b)) for i, b in enumerate(batches)]
    engine.close()


def test_runs_of_one_engine_do_not_disturb_one_another(engine: Engine) -> None:
    runs = [begin(engine, epoch) for epoch in range(3)]
    for step in range(5):
        for number, run in enumerate(runs):
            run.submit([10 * step + number])
    runs[1].close()
    for step in range(5):
        for number in (2, 0):
            assert take(runs[number]) == (step, [10 * step + number], 1)


def test_a_run_may_be_closed_twice_and_in_the_middle_and_is_closed_then(engine: Engine) -> None:
    run = begin(engine)
    run.submit([1])
    run.submit([2])
    take(run)
    run.close()
    run.close()
    with pytest.raises(ferry.Closed):
        run.next(60.0)
    again = begin(engine)
    again.submit([5])
    assert take(again) == (0, [5], 1)


def test_an_error_belongs_to_its_batch_and_the_next_comes(engine: Engine) -> None:
    run = begin(engine)
    run.submit([3])
    # A text is no index, or what it stands for can't be collated with a number.
    run.submit([1, "x"])
    run.submit([4])
    assert take(run) == (0, [3], 1)
    failed = run.next(60.0)
    assert (failed.number, failed.samples) == (1, 0)
    assert isinstance(failed.error, Exception)
    assert take(run) == (2, [4], 1)


def test_a_closed_engine_begins_nothing(engine: Engine) -> None:
    engine.close()
    engine.close()
    with pytest.raises(ferry.Closed):
        begin(engine)
    assert isinstance(engine.stats(), EngineStats)


def test_a_run_outlives_the_last_reference_to_its_engine_and_then_both_go() -> None:
    for make in ENGINES.values():
        engine = make()
        run = begin(engine)
        run.submit([7])
        gone = weakref.ref(engine)
        del engine
        gc.collect()
        assert take(run) == (0, [7], 1)
        del run
        gc.collect()
        assert gone() is None
        assert threads_of_loaders() == []
