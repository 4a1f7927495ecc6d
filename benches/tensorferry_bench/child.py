"""A process for a contestant: both ends of its pipes.

A request is a line of JSON with the name of a case and what it needs; each is answered by one line,
what was measured or ``{"error": "..."}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import warnings
from typing import Any

from tensorferry_bench.cases import describe, find

END_SECONDS = 60


class Child:
    """The parent's end."""

    def __init__(self, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tensorferry_bench.child"],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, case: str, **needs: Any) -> dict[str, Any]:
        """Lets the child do a case."""
        pipes = self._process
        assert pipes.stdin is not None
        assert pipes.stdout is not None
        try:
            pipes.stdin.write(json.dumps({"case": case, **needs}) + "\n")
            pipes.stdin.flush()
            line = pipes.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return {"error": f"its process ended with {self._process.wait(END_SECONDS)}"}
        answer = json.loads(line)
        return answer if isinstance(answer, dict) else {"error": "its answer makes no sense"}

    def end(self) -> None:
        """Closes its input and waits; what does not end by itself is killed."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def answer(line: str) -> dict[str, Any]:
    """Does what a line asks for."""
    try:
        request = json.loads(line)
        return find(request["case"])(request)
    except Exception as error:
        return {"error": describe(error)}


def main() -> int:
    """Serves on standard input and output."""
    warnings.simplefilter("ignore")
    # Whatever a library prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        for line in sys.stdin:
            print(json.dumps(answer(line)), file=answers, flush=True)
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
