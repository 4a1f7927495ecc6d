"""One rank's part of a save."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeAlias

from tensorferry._checkpoint import run
from tensorferry._checkpoint.opened import Opened
from tensorferry._checkpoint.ranks import alone, index, together
from tensorferry._checkpoint.ranks.divide import divide
from tensorferry._checkpoint.ranks.group import Group
from tensorferry._checkpoint.ranks.index import Index
from tensorferry._checkpoint.ranks.names import beside, rank_file
from tensorferry._checkpoint.ranks.survey import survey
from tensorferry._checkpoint.ranks.ticket import Ticket
from tensorferry._checkpoint.ranks.words import Words, open_part
from tensorferry._checkpoint.report import SaveReport
from tensorferry._checkpoint.tools import CoreTool, SaveOptions
from tensorferry._errors import Corrupt, NotFound
from tensorferry._structure import flatten


class Chooser(Protocol):
    """Knows the fastest tool."""

    def core_tool(self, path: str, nbytes: int, durable: bool) -> CoreTool:
        """The tool for so many bytes, among those that write our own format."""
        ...


Prepared: TypeAlias = tuple[Chooser, Group]
"""The tool, and the rank with what it says about its tensors."""


def save(
    prepare: Callable[[], Prepared],
    obj: object,
    path: str,
    group: Group,
    *,
    durable: bool,
    checksum: bool,
) -> SaveReport:
    """Saves this rank's part of a checkpoint, and the index if all other parts are there.

    ``prepare`` may raise: that is a failure of this save, as any other.
    """
    began = time.perf_counter()
    # A link stays one; all files lie beside what it leads to.
    saving = _Saving(os.path.realpath(path), group, durable, checksum)
    way = saving.together if together.can_talk(group) else saving.alone
    report = way(prepare, obj)
    return replace(report, seconds=time.perf_counter() - began)


class _Saving:
    def __init__(self, path: str, group: Group, durable: bool, checksum: bool) -> None:
        self.path = path
        self.group = group
        self.durable = durable
        self.checksum = checksum

    def together(self, prepare: Callable[[], Prepared], obj: object) -> SaveReport:
        """Every step is taken by all ranks, and the next one only if none has failed."""
        ticket, prepared = together.begin(self.path, prepare)

        def discard() -> None:
            self.discard(ticket)

        report = together.step(lambda: self.write(prepared, obj, ticket), discard)
        made = together.step(lambda: self.survey(ticket) if together.leads() else None, discard)
        # From here on the index may be in its place, whatever fails: the files have to stay.
        together.step(lambda: None if made is None else self.publish(*made))
        return report

    def alone(self, prepare: Callable[[], Prepared], obj: object) -> SaveReport:
        """No step waits for another rank."""
        try:
            prepared = prepare()
            ticket = alone.begin(self.path, self.group)
            report = self.write(prepared, obj, ticket)
        except BaseException as failure:
            alone.failed(self.path, self.group, failure)
            raise
        complete = self.all_there(ticket)
        if complete:
            self.publish(*self.survey(ticket))
            alone.finished(self.path, self.group, ticket)
        return replace(report, complete=complete)

    def write(self, prepared: Prepared, obj: object, ticket: Ticket) -> SaveReport:
        """Writes this rank's file."""
        chooser, group = prepared
        part = divide(flatten(obj), group)
        flat = part.with_words(
            token=ticket.token,
            rank=group.rank,
            world_size=group.world_size,
            begun=ticket.begun,
        )
        tool = chooser.core_tool(self.path, flat.nbytes, self.durable)
        options = SaveOptions(self.durable, self.checksum)
        file = beside(self.path, self.files(ticket)[group.rank])
        return run.save_with(tool, obj, flat, file, options)

    def all_there(self, ticket: Ticket) -> bool:
        """Whether the files of all ranks are there, and none is from before this process."""
        paths = [beside(self.path, name) for name in self.files(ticket)]
        if not all(map(os.path.exists, paths)):
            return False
        since = alone.process_started()
        try:
            return all(words.begun >= since for _, words in self.parts(ticket))
        except (NotFound, Corrupt):
            # Somebody else's, by the same name.
            return False

    def survey(self, ticket: Ticket) -> tuple[Index, bytes]:
        """Makes the index, and what stands in its file."""
        parts = self.parts(ticket)
        made = survey(ticket.token, ticket.generation, self.files(ticket), parts)
        return made, made.encoded()

    def parts(self, ticket: Ticket) -> list[tuple[Opened, Words]]:
        """The files of all ranks."""
        files = enumerate(self.files(ticket))
        return [
            open_part(beside(self.path, name), ticket.token, rank, self.group.world_size)
            for rank, name in files
        ]

    def publish(self, made: Index, raw: bytes) -> None:
        """Puts the index in its place, and removes what it replaces."""
        old = index.existing(self.path)
        index.write(raw, self.path, durable=self.durable)
        index.remove_replaced(old, made, self.path)

    def discard(self, ticket: Ticket) -> None:
        """Removes this rank's file of a save that has failed."""
        try:
            os.unlink(beside(self.path, self.files(ticket)[self.group.rank]))
        except OSError:
            return

    def files(self, ticket: Ticket) -> list[str]:
        """The names of all ranks' files."""
        ranks = range(self.group.world_size)
        return [rank_file(self.path, rank, len(ranks), ticket.token) for rank in ranks]
