"""Datasets that the core reads by itself: no Python between storage and batch."""

from __future__ import annotations

import copy
import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from tensorferry import _lib
from tensorferry._data.engine import Engine, OnError, Options
from tensorferry._data.labels import numbers_of

if TYPE_CHECKING:
    from tensorferry._data.core import Apart

Paths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"


class Stored:
    """Samples in files or in a store. The list of them is made here and fixed from then on."""

    _steps: tuple[Any, int | None, OnError] | None = None
    """A loader's transform, and more of what it does to samples."""

    _apart: Apart | None = None

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._spec = dict(spec)
        self._source = _lib.Source(json.dumps(self._spec))
        for each in self._source.warnings():
            warnings.warn(each, stacklevel=3)

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Any:
        """One sample, decoded, as ``batch_size=None`` gives it; the ``dataset`` of a loader has the
        loader's transform."""
        from tensorferry._data.core import one

        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no sample {index} among {len(self)}")
        if self._steps is None:
            return one(self._source, index % len(self))
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Samples of a batch, made side by side: torch's own loader asks for them so."""
        if self._steps is None:
            return [self[index] for index in indices]
        if self._apart is None:
            from tensorferry._data.core import Apart

            self._apart = Apart(self._source, *self._steps)
        return self._apart.samples([range(len(self))[index] for index in indices])

    def name(self, index: int) -> str:
        """Where a sample lies."""
        return self._source.name(range(len(self))[index])

    def _prepared(self, transform: Any, max_pixels: int | None, on_error: OnError) -> Self:
        """The same samples, prepared as a loader would: for those who take a loader apart and read
        its dataset without it."""
        prepared = copy.copy(self)
        prepared._steps, prepared._apart = (transform, max_pixels, on_error), None
        return prepared

    def _engine(self, options: Options) -> Engine:
        from tensorferry._data.core import Core

        return Core(self._source, options)

    def __reduce__(self) -> Any:
        return _again, (type(self), self._spec, self._steps)

    def __copy__(self) -> Self:
        copied = type(self).__new__(type(self))
        vars(copied).update(vars(self))
        return copied


def _again(kind: type[Stored], spec: Mapping[str, Any], steps: Any) -> Stored:
    """The same list, made once more: in another process."""
    made = kind.__new__(kind)
    Stored.__init__(made, spec)
    made._steps = steps
    return made


class ImageFolder(Stored):
    """Pictures in a directory for each class, in torchvision's order: ``root/class/picture.jpg``.

    ``root`` is a path or a URL (``s3://``, ``gs://``, ``https://``); ``storage_options`` go to its
    store. ``extensions`` are the endings of what is listed, by default torchvision's, which are
    more than JPEG, PNG and WebP: a file that is none of these is an error of its sample by name,
    whatever it is called, and a warning is given here if some are called so.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        extensions: str | Iterable[str] | None = None,
        allow_empty: bool = False,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        listed = [extensions] if isinstance(extensions, str) else extensions
        super().__init__(
            {
                "kind": "folder",
                "root": os.fspath(root),
                "extensions": None if listed is None else list(listed),
                "allow_empty": allow_empty,
                "storage_options": dict(storage_options or {}),
            }
        )

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

    ``labels`` are numbers, one for each file: a list, or an array or tensor of one dimension. As
    torch collates them, whole numbers become int64, floats (also some among whole numbers) float64,
    bools bool.
    """

    def __init__(
        self,
        paths: Paths,
        labels: Any = None,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        given = None if labels is None else numbers_of(labels)
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
