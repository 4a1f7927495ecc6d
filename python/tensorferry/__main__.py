"""The ``tensorferry`` command: the same Rust code as the stand-alone binary."""

import signal
import sys

from tensorferry import _lib


def main() -> int:
    """Runs the command line in ``sys.argv`` and returns its exit code."""
    # Python's handler only sets a flag that the interpreter looks at between bytecodes, and none
    # run while Rust works: Ctrl-C would wait for the command's end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _lib.cli_main(["tensorferry", *sys.argv[1:]], sys.executable or None)


if __name__ == "__main__":
    sys.exit(main())
