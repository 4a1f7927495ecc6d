"""Datasets that the core reads by itself: no Python between storage and batch."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from tensorferry import _lib
from tensorferry._data.engine import Engine, Options

Paths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"


class Stored:
    """Samples in files or in a store. The list of them is made here and fixed from then on."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._spec = dict(spec)
        self._source = _lib.Source(json.dumps(self._spec))
        for each in self._source.warnings():
            warnings.warn(each, stacklevel=3)

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Any:
        """One sample, decoded and not transformed, as ``batch_size=None`` gives it."""
        from tensorferry._data.core import one

        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no sample {index} among {len(self)}")
        return one(self._source, index % len(self))

    def name(self, index: int) -> str:
        """Where a sample lies."""
        return self._source.name(range(len(self))[index])

    def _engine(self, options: Options) -> Engine:
        from tensorferry._data.core import Core

        return Core(self._source, options, is_remote=self._is_remote)

    @property
    def _is_remote(self) -> bool:
        """Whether samples come over a network, or as slowly."""
        return "://" in json.dumps(self._spec) or self._spec["kind"] == "throttled"

    def __reduce__(self) -> Any:
        return _again, (type(self), self._spec)


def _again(kind: type[Stored], spec: Mapping[str, Any]) -> Stored:
    """The same list, made once more: in another process."""
    made = kind.__new__(kind)
    Stored.__init__(made, spec)
    return made


class ImageFolder(Stored):
    """Pictures in a directory for each class, in torchvision's order: ``root/class/picture.jpg``.

    ``root`` is a path or a URL (``s3://``, ``gs://``, ``https://``); ``storage_options`` go to its
    store.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        allow_empty: bool = False,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        spec = {"kind": "folder", "root": os.fspath(root), "allow_empty": allow_empty}
        super().__init__({**spec, "storage_options": dict(storage_options or {})})

    @property
    def root(self) -> str:
        """Where the directories of the classes are."""
        return str(self._spec["root"])

    @cached_property
    def classes(self) -> list[str]:
        """The names of the classes, by label."""
        return self._source.classes()

    @cached_property
    def class_to_idx(self) -> dict[str, int]:
        """And back."""
        return {name: label for label, name in enumerate(self.classes)}

    @cached_property
    def targets(self) -> list[int]:
        """The label of every sample."""
        return [int(self._source.label(index) or 0) for index in range(len(self))]

    @cached_property
    def samples(self) -> list[tuple[str, int]]:
        """Where every sample lies, and its label."""
        return [(self._source.name(index), label) for index, label in enumerate(self.targets)]


class TarShards(Stored):
    """Samples in tar files, in WebDataset's layout: members of one name and several endings.

    ``pattern`` may have braces and wildcards (``"train-{000..146}.tar"``), or be a list. ``fields``
    are endings, each with its alternatives (``("jpg;png", "cls")``); by default the picture or
    array of a sample, and its class if it has one. A shard that is cut or damaged is an error, or
    with ``strict=False`` ends where it does.
    """

    def __init__(
        self,
        pattern: Paths,
        fields: Sequence[str] | None = None,
        *,
        strict: bool = True,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        fields = list(fields) if fields is not None else None
        spec = {"kind": "tar", "shards": _paths(pattern), "fields": fields, "strict": strict}
        super().__init__({**spec, "storage_options": dict(storage_options or {})})


class Files(Stored):
    """Files, a sample each: pictures, ``.npy``, ``.npz``, ``.wav``, or bytes as they are.

    ``labels`` are whole numbers or floats, one for each file.
    """

    def __init__(
        self,
        paths: Paths,
        labels: Iterable[float] | None = None,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        given = None if labels is None else [_number(label) for label in labels]
        spec = {"kind": "files", "paths": _paths(paths), "labels": given}
        super().__init__({**spec, "storage_options": dict(storage_options or {})})


class Throttled(Stored):
    """Another dataset, read at so many bytes a second: what a slow store would do."""

    def __init__(
        self, dataset: Stored, bytes_per_second: int, latency_seconds: float = 0.0
    ) -> None:
        spec = {"kind": "throttled", "source": dataset._spec, "bytes_per_second": bytes_per_second}
        super().__init__({**spec, "latency_seconds": latency_seconds})


def _paths(paths: Paths) -> str | list[str]:
    if isinstance(paths, str | os.PathLike):
        return os.fspath(paths)
    return [os.fspath(path) for path in paths]


def _number(label: Any) -> int | float:
    """A plain number: NumPy's and torch's have ``item``."""
    plain = label.item() if hasattr(label, "item") else label
    return plain if isinstance(plain, int | float) else float(plain)
