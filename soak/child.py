"""A parent's side: a process that works, is heard, disturbed and ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from soak import session
from soak.failure import Crash, Hang, Unclear, Wrong
from soak.group import Group
from soak.tell import TEXT_MAX, live

PATIENCE_SECONDS = 240
"""Without a word from a process that runs. Generous: words come by the second on a quiet machine,
and a busy one is ten times slower."""

SLICE_SECONDS = 0.5
"""Of waiting, before deadlines are looked at."""

STACKS_SECONDS = 60
"""For a process that hangs to write where its threads stand."""

WORDS_KEPT = 60
"""Of each process, for the report of a failure."""


class Child:
    """A forked process that does ``work(tell, **arguments)`` in a session of its own."""

    def __init__(
        self,
        work: Callable[..., Any],
        arguments: dict[str, Any],
        home: Path,
        siblings: list[Child],
        group: Group | None,
    ) -> None:
        self.name = f"{work.__module__.removeprefix('soak.')}.{work.__name__}"
        self.arguments = arguments
        self._home = home
        self._siblings = siblings
        self._group = group
        self._counts: Counter[str] = Counter()
        self._last: dict[str, Any] = {}
        self._times: dict[str, deque[float]] = {}
        self._heard: deque[str] = deque(maxlen=WORDS_KEPT)
        self._rest = b""
        self._code: int | None = None
        self._fork(work)
        siblings.append(self)

    def _fork(self, work: Callable[..., Any]) -> None:
        ear, mouth = os.pipe()
        self._born = self._heard_at = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(ear)
            live(work, self.arguments, mouth, self._home, self._group)
        os.close(mouth)
        os.set_blocking(ear, False)
        self._ear, self._end = ear, os.pidfd_open(self.pid)

    # -- what it says --

    def count(self, word: str) -> int:
        """How often it has said that."""
        return self._counts[word]

    def last(self, word: str, default: Any = None) -> Any:
        """What it said with a word last."""
        return self._last.get(word, default)

    def pace(self, word: str) -> float:
        """Seconds between two times that it said a word, as far as is known."""
        times = self._times.get(word, deque())
        return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else SLICE_SECONDS

    def wait_for(self, word: str, times: int = 1) -> Any:
        """Until it has said a word so often; what it said with it last."""
        while self.count(word) < times:
            if self._code is not None:
                self._judge(())
                raise Wrong(f"{self.name} ended before it said {word!r} {times} times")
            self._listen_for(SLICE_SECONDS)
        return self.last(word)

    def wait_for_or_end(self, word: str, times: int = 1) -> None:
        """Likewise, or until it has ended, which may be what it is expected to do."""
        while self.is_alive and self.count(word) < times:
            self._listen_for(SLICE_SECONDS)

    def result(self, *expected: str) -> Any:
        """What its work returned; the name of the error that it raised, if that is expected."""
        while self._code is None:
            self._listen_for(SLICE_SECONDS)
        return self._judge(expected)

    def _listen_for(self, seconds: float) -> None:
        listen(self._siblings, seconds)
        quiet = time.monotonic() - self._heard_at
        if self._code is None and quiet > PATIENCE_SECONDS:
            raise Hang(f"{self.name} said nothing for {quiet:.0f} s\n{self._stacks()}")

    # -- what is done to it --

    def kill(self) -> None:
        """SIGKILL for this process only: what it has started has to notice."""
        self.signal(signal.SIGKILL)
        while self._code is None:
            self._listen_for(SLICE_SECONDS)

    def pause(self, seconds: float) -> None:
        """Stops the whole process for a while, and what it has started."""
        stopped = [self.pid, *session.members(self.pid)]
        for pid in stopped:
            _send(pid, signal.SIGSTOP)
        watch(self._siblings, seconds)
        for pid in stopped:
            _send(pid, signal.SIGCONT)
        self._heard_at = time.monotonic()

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal; one that has ended does not mind."""
        signal.pidfd_send_signal(self._end, number)

    @property
    def was_killed(self) -> bool:
        """Whether SIGKILL ended it."""
        return self._code == -signal.SIGKILL

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended, as far as was heard."""
        return self._code is None

    def close(self) -> None:
        """Ends it, if it has not ended, with all that it has started."""
        session.end(self.pid)
        os.waitpid(self.pid, 0)
        for descriptor in (self._ear, self._end):
            os.close(descriptor)

    # -- hearing --

    @property
    def ears(self) -> Sequence[int]:
        """What becomes readable when it says something, or ends."""
        return () if self._code is not None else (self._ear, self._end)

    def hear(self) -> None:
        """Takes in what it has said by now, and whether it has ended."""
        # Nobody else gets its number before ``close``: until then it is a zombie.
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        ended = os.waitid(os.P_PID, self.pid, look)
        self._take_lines()
        if ended is not None:
            sign = 1 if ended.si_code == os.CLD_EXITED else -1
            self._code = sign * ended.si_status

    def _take_lines(self) -> None:
        while True:
            try:
                part = os.read(self._ear, 1 << 16)
            except BlockingIOError:
                return
            if not part:
                return
            *lines, self._rest = (self._rest + part).split(b"\n")
            for line in lines:
                self._take(*json.loads(line))

    def _take(self, word: str, value: Any) -> None:
        self._heard_at = time.monotonic()
        self._counts[word] += 1
        self._last[word] = value
        self._times.setdefault(word, deque(maxlen=8)).append(self._heard_at)
        self._heard.append(f"{self._heard_at - self._born:8.3f} {word} {value}"[:TEXT_MAX])

    # -- judging --

    def _judge(self, expected: Sequence[str]) -> Any:
        code, ended = self._code, self.last("ended")
        if code != 0 or ended is None:
            raise Crash(f"{self.name} was ended {self._how()}\n{self._errors()}")
        if "raised" not in ended:
            return ended["result"]
        raised = ended["raised"]
        for name in raised["names"]:
            if name.rpartition(".")[2] in expected:
                return name.rpartition(".")[2]
        raise Unclear(
            f"{self.name} raised {raised['names'][0]}: {raised['text']}\n{raised['trace']}"
        )

    def _how(self) -> str:
        if self.was_killed and self._group is not None and self._group.kills():
            return "by the kernel: its group's memory was exhausted"
        return f"by signal {-self._code}" if self._code else "without a word"

    def transcript(self) -> str:
        """What it was to do, what it said last, and its standard error."""
        head = f"-- {self.name} {json.dumps(self.arguments, default=str)}, process {self.pid}"
        return "\n".join([head, *self._heard, self._errors()]).rstrip()

    def _errors(self) -> str:
        path = self._home / f"{self.pid}.err"
        return path.read_text(errors="replace")[-TEXT_MAX:] if path.exists() else ""

    def _stacks(self) -> str:
        """Where its threads stand: those of Python, and what the kernel knows of all."""
        self.signal(signal.SIGUSR1)
        until = time.monotonic() + STACKS_SECONDS
        while "most recent call" not in self._errors() and time.monotonic() < until:
            watch(self._siblings, SLICE_SECONDS)
        return f"{session.threads(self.pid)}\n{self._errors()}"


def listen(children: Sequence[Child], seconds: float) -> None:
    """Hears what children say; returns when one has said something, or after so long.

    All are heard, whoever is waited for: a pipe that nobody empties would stop its writer.
    """
    by_ear = {ear: child for child in children for ear in child.ears}
    poll = select.poll()
    for ear in by_ear:
        poll.register(ear, select.POLLIN)
    for ear, _ in poll.poll(seconds * 1000):
        by_ear[ear].hear()


def watch(children: Sequence[Child], seconds: float) -> None:
    """Hears them for so long."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        listen(children, left)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
