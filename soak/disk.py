"""A small file system of its own, which can be filled up."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from soak.failure import NotHere

FREEING_SECONDS = 60
SLACK = 1 << 20
"""Bytes that a file system may keep for itself."""

BALLAST = "ballast"
"""The name of the file that takes the room."""


class Disk:
    """``kind`` is ``"tmpfs"``, or ``"ext4"`` on an image that lies beside the place."""

    def __init__(self, place: Path, size: int, kind: str) -> None:
        self.place = place
        place.mkdir()
        try:
            if kind == "tmpfs":
                _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
            else:
                self._mount_image(place.with_name(f"{place.name}.image"), size)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotHere(f"mounting a small {kind}") from error
        self.free_at_first = self.free()

    def _mount_image(self, image: Path, size: int) -> None:
        with image.open("wb") as file:
            file.truncate(size)
        # Without a journal and room for root: what is left is what a file may have.
        _run("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", str(image))
        _run("mount", "-o", "loop", str(image), str(self.place))
        (self.place / "lost+found").rmdir()

    def free(self) -> int:
        """Bytes that files may still take."""
        told = os.statvfs(self.place)
        return told.f_bavail * told.f_frsize

    def fill(self, leaving: int) -> None:
        """Takes the room but for so many bytes; less, if others take it at the same time."""
        file = os.open(self.place / BALLAST, os.O_CREAT | os.O_WRONLY)
        try:
            length = self.free() - leaving
            while length > 0:
                try:
                    os.posix_fallocate(file, 0, length)
                except OSError:
                    length //= 2
                else:
                    break
        finally:
            os.close(file)

    def drain(self) -> None:
        """Gives the room back."""
        (self.place / BALLAST).unlink(missing_ok=True)

    def wait_until_free(self) -> int:
        """The bytes that are not free again, with time for the kernel: it closes the files of a
        ring some time after its process has gone."""
        until = time.monotonic() + FREEING_SECONDS
        while (lost := self.free_at_first - self.free()) > SLACK and time.monotonic() < until:
            time.sleep(0.02)
        return lost if lost > SLACK else 0

    def names(self) -> list[str]:
        """What lies there, but for the ballast."""
        return sorted(set(os.listdir(self.place)) - {BALLAST})

    def close(self) -> None:
        """Unmounts it."""
        subprocess.run(["umount", "-l", str(self.place)], capture_output=True, check=False)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
