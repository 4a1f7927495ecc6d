"""A checkpoint in several files, open: its tensors by name, as if it were one file.

The index says which tensors there are. A sharded one is put together from the files of all ranks;
of one that each rank has for itself, there is no single tensor, and so it is not listed.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence

import torch

from tensorferry._checkpoint.opened import Opened
from tensorferry._checkpoint.ranks.index import Index, Private, Sharded, Tensor, WeightMap, read
from tensorferry._checkpoint.ranks.load import OPEN_MAX, check_tensor, missing
from tensorferry._checkpoint.ranks.names import beside
from tensorferry._checkpoint.ranks.pieces import Cut, Fetch
from tensorferry._checkpoint.ranks.words import open_part
from tensorferry._errors import Corrupt, NotFound


class OpenedIndex:
    """What ``safe_open`` asks of a file, of the files of an index."""

    def __init__(self, path: str, *, verify: bool) -> None:
        self.path = os.path.realpath(path)
        self.verify = verify
        self.index = read(self.path)
        self.files: OrderedDict[str, Opened] = OrderedDict()

    def names(self) -> list[str]:
        """Those that are one tensor for whoever reads alone, in the order of the index."""
        if isinstance(self.index, WeightMap):
            return list(self.index.files)
        return [name for name, kept in self.index.tensors.items() if _is_one(kept)]

    @property
    def metadata(self) -> dict[str, str]:
        """The texts of the first file that say nothing about that file alone."""
        files = self.index.files
        first = files[0] if isinstance(files, list) else next(iter(files.values()), None)
        texts = {} if first is None else self.file(first).metadata
        return {key: text for key, text in texts.items() if key not in ("tensorferry", "crc32c")}

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor, verified."""
        kept = self.kept(name)
        if not isinstance(kept, Sharded) or not isinstance(self.index, Index):
            file = self.holders(name)[0]
            return file.owned([name])[name]
        cut = Cut(name, kept, self.index.world_size, 0, 1)
        fetch, made = Fetch(mmap=False, verify=self.verify), dict[str, torch.Tensor]()
        for rank in cut.holders:
            fetch.cut(self.rank(rank, name), rank, [cut], made)
        return made[name]

    def parts(self, name: str) -> tuple[list[torch.Tensor], int]:
        """A tensor's parts, mapped, and the dimension along which it is cut."""
        kept = self.kept(name)
        parts = [file.parts(name)[0][0] for file in self.holders(name)]
        return parts, kept.dim if isinstance(kept, Sharded) else 0

    def stored_dtype(self, name: str) -> str:
        """By the name that the files have for it."""
        return self.holders(name)[0].stored_dtype(name)

    def kept(self, name: str) -> Tensor | None:
        """How the ranks keep a tensor; nothing where it is whole in a plain file."""
        if isinstance(self.index, WeightMap):
            if name not in self.index.files:
                raise NotFound(f"the index has no tensor {name!r} (file: {self.path})")
            return None
        kept = self.index.tensors.get(name)
        if kept is None:
            raise NotFound(f"the index has no tensor {name!r} (file: {self.path})")
        if not _is_one(kept):
            file = self.index.files[kept.ranks[0] if isinstance(kept, Private) else 0]
            what = f"each rank has its own {name!r}; open the file of one, such as {file}"
            raise NotFound(f"{what} (file: {self.path})")
        return kept

    def holders(self, name: str) -> Sequence[Opened]:
        """The files that have something of a tensor."""
        kept = self.kept(name)
        if isinstance(self.index, WeightMap):
            file = self.file(self.index.files[name])
            if name not in file.numbers:
                what = f"the index says that the tensor {name!r} is in this file, but it is not"
                raise Corrupt(f"{what} (file: {file.path})")
            return [file]
        if isinstance(kept, Sharded):
            return [self.rank(rank, name) for rank in range(self.index.world_size)]
        return [self.rank(0 if isinstance(kept, Private) or kept is None else kept.rank, name)]

    def rank(self, rank: int, name: str) -> Opened:
        """The file of a rank, which has of the tensor what the index says."""
        assert isinstance(self.index, Index)
        file = self.file(self.index.files[rank], rank)
        check_tensor(file, rank, name, self.index, self.path)
        return file

    def file(self, name: str, rank: int = 0) -> Opened:
        """One of the files; the latest stay open."""
        opened = self.files.get(name)
        if opened is None:
            path = beside(self.path, name)
            try:
                if isinstance(self.index, Index):
                    saved = (self.index.token, rank, self.index.world_size)
                    opened, _ = open_part(path, *saved, verify=self.verify)
                else:
                    opened = Opened(path, verify=self.verify)
            except NotFound:
                raise missing(path, self.path) from None
            self.files[name] = opened
        self.files.move_to_end(name)
        while len(self.files) > OPEN_MAX:
            self.files.popitem(last=False)
        return opened

    def forget(self) -> None:
        """Gives the mappings back."""
        for file in self.files.values():
            file.forget()


def _is_one(kept: Tensor) -> bool:
    return not isinstance(kept, Private) or kept.equal or (kept.own and kept.ranks[0] == 0)
