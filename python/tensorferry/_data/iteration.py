"""One pass over a loader: reads the order ahead, submits, takes, yields.

States: made → begun → over or closed. It begins when it is made if the order may be read then,
otherwise with the first batch asked for. It is over when the order or the data ends. Dropping it
drops its run, which stops its threads. It refers to no loader, so a loader may be dropped first.

Bounds: ``ahead`` batches are submitted and not yet taken, and one more while it waits for one; it
would be submitted as soon as that is there.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from tensorferry._data.engine import Batch, Engine, Foreseeing, Run
from tensorferry._data.position import Position
from tensorferry._data.progress import Shown, progress_line
from tensorferry._data.stats import Meter, Watch
from tensorferry._errors import Closed


class Iteration:
    """The iterator of a ``DataLoader``."""

    def __init__(
        self,
        engine: Engine,
        position: Position,
        meter: Meter,
        *,
        ahead: int,
        timeout: float | None,
        in_caller: bool,
        total: int | None,
        said: int | None,
        progress: Shown,
    ) -> None:
        self._engine = engine
        self._position = position
        self._epoch_order = position.epoch_order
        self._meter = meter
        self._ahead = ahead
        self._timeout = timeout
        self._in_caller = in_caller
        self._process = os.getpid()
        self._total = total
        self._said = said
        self._yielded = 0
        self._watch = Watch(meter)
        epoch = position.start.epoch
        self._progress = progress_line(progress, epoch, position.passed, total, meter)
        self._run: Run | None = None
        self._over = False
        self._closed = False
        self._order_error: Exception | None = None
        self._order: Iterator[tuple[int, Sequence[Any]]] | None = None
        self._numbers: dict[int, int] = {}
        self._submitted = 0
        if self._epoch_order.eager:
            self._begin()

    def __iter__(self) -> Iteration:
        return self

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        if self._total is None:
            raise TypeError("the length of this iteration is not known")
        return self._total

    def __next__(self) -> Any:
        self._check_process()
        self._watch.asked()
        try:
            batch = self._next_to_yield()
        except StopIteration:
            self._end()
            raise
        finally:
            self._watch.answered()
        if self._progress is not None:
            self._progress.update()
        self._warn_of_more()
        return batch.data

    def close(self) -> None:
        """Ends it early; its threads stop."""
        self._closed = True
        self._order = None
        if self._run is not None and self._is_ours:
            self._run.close()

    def _begin(self) -> Run:
        position, epoch_order = self._position, self._epoch_order
        self._meter.epoch = position.start.epoch
        self._meter.ledger.settle()
        if isinstance(self._engine, Foreseeing):
            self._ahead = max(self._ahead, self._engine.ahead)
            if self._engine.foresees:
                self._engine.foresee(epoch_order.foreseen())
        run = self._run = self._engine.begin(
            position.start.epoch,
            seed=position.start.known_chance,
            base_seed=epoch_order.base_seed,
            resume=position.start.resume(),
        )
        self._order = epoch_order.batches()
        self._fill(run, self._ahead)
        return run

    def _fill(self, run: Run, ahead: int) -> None:
        while self._order is not None and len(self._numbers) < ahead:
            try:
                drawn = next(self._order, None)
            except Exception as error:
                # Raised after the batches that came before it.
                self._order_error, drawn = error, None
            if drawn is None:
                self._order = None
                return
            number, indices = drawn
            self._numbers[self._submitted] = number
            self._submitted += 1
            run.submit(indices)

    def _next_to_yield(self) -> Batch:
        if self._over:
            raise StopIteration
        if self._closed:
            raise Closed("this DataLoader is closed")
        self._epoch_order.pulled(self._position.requested + 1)
        self._epoch_order.passed(self._position.passed)
        run = self._run or self._begin()
        while True:
            self._fill(run, self._ahead if self._in_caller else self._ahead + 1)
            if not self._numbers:
                error: BaseException | None = self._order_error or StopIteration()
                self._order_error = None
            else:
                batch = run.next(self._timeout)
                if self._is_for_the_user(batch, self._numbers.pop(batch.number)):
                    return batch
                error = batch.error
                del batch
            if error is not None:
                try:
                    raise error
                finally:
                    # It refers to this frame. Were it referred to from here, only the collector
                    # would end the workers, and torch waits for them then.
                    del error

    def _is_for_the_user(self, batch: Batch, number: int) -> bool:
        self._meter.took(batch)
        if batch.ended:
            self._position.exhausted(batch)
        if batch.error is not None or batch.samples == 0:
            self._position.dropped(number)
            return False
        self._position.yielded(number, batch)
        self._meter.yielded(batch)
        return True

    def _end(self) -> None:
        if not self._over:
            self._over = self._position.ended = True
            self._meter.ledger.settle()
            if self._progress is not None:
                self._progress.finish()
            self.close()

    def _warn_of_more(self) -> None:
        """What an ``IterableDataset`` said of its length when ``len`` of the loader was asked for
        is held against what comes, as torch's loader does."""
        self._yielded += 1
        if self._said is not None and self._yielded > self._said:
            what = f"Length of IterableDataset was reported to be {self._said} (when accessing"
            what += f" len(dataloader)), but {self._yielded} samples have been fetched."
            why = "For multiprocessing data-loading, this is so if each worker yields all of them."
            what = what if self._in_caller else f"{what} {why}"
            warnings.warn(what, UserWarning, stacklevel=3)

    @property
    def _is_ours(self) -> bool:
        """Whether its threads, if it has any, are in this process."""
        return self._in_caller or self._process == os.getpid()

    def _check_process(self) -> None:
        if not self._is_ours:
            what = "this iteration belongs to the process that this one was forked from"
            raise Closed(f"{what}; iterate over the DataLoader again in this process")
