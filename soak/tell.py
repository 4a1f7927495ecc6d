"""A child's side: how it tells its parent what it does, and what a process is set up with."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from soak.group import Group

TEXT_MAX = 3000
"""Characters of an error's text and of its traceback, so that a line stays whole in the pipe."""


class Tell:
    """Writes lines of JSON that the parent reads: a word, and what belongs to it."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def __call__(self, word: str, value: Any = None) -> None:
        """Says it; waits if the parent does not read."""
        os.write(self._pipe, json.dumps([word, value]).encode() + b"\n")

    def held(self) -> dict[str, int]:
        """Says, and gives, what this process holds: bytes of its own memory, files, threads."""
        gc.collect()
        status = dict(
            line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines()
        )
        memory = sum(int(status[name].split()[0]) for name in ("RssAnon", "RssShmem")) << 10
        files = len(os.listdir("/proc/self/fd"))
        held = {"memory": memory, "files": files, "threads": int(status["Threads"])}
        self("held", held)
        return held


def live(
    work: Callable[..., Any],
    arguments: dict[str, Any],
    pipe: int,
    home: Path,
    group: Group | None,
) -> NoReturn:
    """What a process does after its fork: all of its life."""
    os.setsid()
    tell = Tell(pipe)
    try:
        if group is not None:
            group.join()
        _settle(home)
        tell("ended", {"result": work(tell, **arguments)})
        _leave()
    except BaseException as error:
        told = _described(error)
        with contextlib.suppress(OSError):
            tell("ended", {"raised": told})
    finally:
        os._exit(0)


def _settle(home: Path) -> None:
    """Standard streams in files, a stack when asked for, no memory of other scenarios."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    errors = os.open(home / f"{os.getpid()}.err", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(errors, stream)
    os.close(errors)
    faulthandler.enable(sys.stderr)
    faulthandler.register(signal.SIGUSR1, sys.stderr)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["XDG_CACHE_HOME"] = str(home / "cache")


def _leave() -> None:
    """As an interpreter leaves, which a forked process can't: first what was registered."""
    gc.collect()
    atexit._run_exitfuncs()


def _described(error: BaseException) -> dict[str, Any]:
    names = [f"{each.__module__}.{each.__qualname__}" for each in type(error).__mro__]
    trace = "".join(traceback.format_exception(error))
    return {"names": names, "text": str(error)[:TEXT_MAX], "trace": trace[-TEXT_MAX:]}
