"""One rank's part of a save."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from tensorferry._checkpoint.chooser import Chooser
from tensorferry._checkpoint.opened import Opened
from tensorferry._checkpoint.ranks import alone, index, together
from tensorferry._checkpoint.ranks.claim import Claim, claim
from tensorferry._checkpoint.ranks.divide import divide
from tensorferry._checkpoint.ranks.group import Group
from tensorferry._checkpoint.ranks.index import Index
from tensorferry._checkpoint.ranks.names import beside, rank_file
from tensorferry._checkpoint.ranks.survey import survey
from tensorferry._checkpoint.ranks.ticket import Ticket
from tensorferry._checkpoint.ranks.words import Words, open_part
from tensorferry._checkpoint.report import SaveReport
from tensorferry._checkpoint.run import save_core
from tensorferry._checkpoint.tools import SaveOptions
from tensorferry._errors import Corrupt, Error, NotFound
from tensorferry._structure import flatten

Prepared: TypeAlias = tuple[Chooser, Group]
"""Who chooses the tool, and the rank with what it says about its tensors."""


def save(
    prepare: Callable[[], Prepared],
    obj: object,
    path: str,
    group: Group,
    options: SaveOptions,
) -> SaveReport:
    """Saves this rank's part of a checkpoint, and the index if all other parts are there.

    ``prepare`` may raise: that is a failure of this save, as any other.
    """
    began = time.perf_counter()
    # A link stays one; all files lie beside what it leads to.
    saving = _Saving(os.path.realpath(path), group, options)
    way = saving.together if together.can_talk(group) else saving.alone
    report = way(prepare, obj)
    return replace(report, seconds=time.perf_counter() - began)


class _Saving:
    def __init__(self, path: str, group: Group, options: SaveOptions) -> None:
        self.path = path
        self.group = group
        self.options = options

    def together(self, prepare: Callable[[], Prepared], obj: object) -> SaveReport:
        """Every step is taken by all ranks, and the next one only if none has failed."""
        ticket, prepared = together.begin(self.path, prepare)

        def discard() -> None:
            index.remove([self.files(ticket)[self.group.rank]], self.path)

        def withdraw() -> None:
            # Over a network, what other ranks see at the path may be older.
            if together.leads():
                self.withdraw(ticket)

        report = together.step(lambda: self.write(prepared, obj, ticket), discard)
        made = together.step(lambda: self.survey(ticket) if together.leads() else None, discard)
        # From here on the index may be in its place, whatever fails.
        together.step(lambda: None if made is None else self.publish(*made), withdraw)
        return report

    def alone(self, prepare: Callable[[], Prepared], obj: object) -> SaveReport:
        """No step waits for another rank."""
        try:
            prepared = prepare()
            ticket = alone.begin(self.path, self.group)
            report = self.write(prepared, obj, ticket)
            complete = self.all_there(ticket) and self.decided(ticket)
        except BaseException as failure:
            alone.failed(self.path, self.group, failure)
            raise
        if complete:
            alone.finished(self.path, self.group, ticket)
        return replace(report, complete=complete)

    def write(self, prepared: Prepared, obj: object, ticket: Ticket) -> SaveReport:
        """Writes this rank's file."""
        chooser, group = prepared
        part = divide(flatten(obj, self.options.ties), group)
        flat = part.with_words(
            token=ticket.token,
            rank=group.rank,
            world_size=group.world_size,
            begun=ticket.begun,
        )
        file = beside(self.path, self.files(ticket)[group.rank])
        return save_core(chooser, obj, flat, file, self.options)

    def all_there(self, ticket: Ticket) -> bool:
        """Whether the files of all ranks are there, and none is from before this process."""
        since = alone.process_started()
        try:
            return self.all_exist(ticket) and all(
                words.begun >= since for _, words in self.parts(ticket)
            )
        except (NotFound, Corrupt):
            # Somebody else's, by the same name.
            return False

    def all_exist(self, ticket: Ticket) -> bool:
        """The same, as far as names tell."""
        return all(os.path.exists(beside(self.path, name)) for name in self.files(ticket))

    def decided(self, ticket: Ticket) -> bool:
        """Makes the index of files that are all there, unless another rank does, or has found that
        it can't be made."""
        with claim(self.path, self.files(ticket)) as found:
            if found is Claim.TAKEN or not self.all_exist(ticket):
                return False
            try:
                self.publish(*self.survey(ticket))
            except BaseException:
                if found is Claim.HELD:
                    self.withdraw(ticket)
                raise
        return True

    def survey(self, ticket: Ticket) -> tuple[Index, bytes]:
        """Makes the index, and what stands in its file."""
        parts = self.parts(ticket)
        made = survey(ticket.token, ticket.generation, self.files(ticket), parts)
        return made, made.encoded()

    def parts(self, ticket: Ticket) -> Iterator[tuple[Opened, Words]]:
        """The files of all ranks, one after the other: there may be more than can be open."""
        for rank, name in enumerate(self.files(ticket)):
            yield open_part(beside(self.path, name), ticket.token, rank, self.group.world_size)

    def publish(self, made: Index, raw: bytes) -> None:
        """Puts the index in its place, and removes what it replaces."""
        old = index.existing(self.path)
        index.write(raw, self.path, durable=self.options.durable)
        index.remove_replaced(old, made, self.path)

    def withdraw(self, ticket: Ticket) -> None:
        """Removes the files of all ranks, unless there is an index of them after all."""
        try:
            there = index.existing(self.path)
        except Error:
            # Nobody can tell.
            return
        if there is None or there.token != ticket.token:
            index.remove(self.files(ticket), self.path)

    def files(self, ticket: Ticket) -> list[str]:
        """The names of all ranks' files."""
        ranks = range(self.group.world_size)
        return [rank_file(self.path, rank, len(ranks), ticket.token) for rank in ranks]
