"""``python -m soak``: arguments, one path after the other, table, JSON and exit code."""

from __future__ import annotations

import argparse
import importlib
import json
import random
import shutil
import sys
from pathlib import Path

from soak.apart import go_apart

PATHS = ("checkpoint", "data", "activations", "parameters", "engine")


def main() -> int:
    """0 if nothing failed."""
    asked = _arguments()
    if asked.table:
        from soak.result import table

        print(table([json.loads(path.read_text()) for path in sorted(asked.table)]))
        return 0
    go_apart()
    return sum(_soak(name, asked) for name in asked.only.split(",")) > 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak", description="Paths at work under disturbances")
    add = parser.add_argument
    add("--only", default=",".join(PATHS), metavar="PATHS", help="names, with commas between")
    add("--minutes", type=float, default=20, help="for each path")
    add("--seed", type=int, default=None, help="repeats a sequence of scenarios")
    add("--scenario", type=int, default=None, help="only the one with this number")
    add("--kinds", default="", metavar="WORD", help="only kinds of scenarios with this word")
    add("--each", action="store_true", help="every kind of scenario once")
    add("--place", type=Path, default=Path("target/soak"), help="a directory on the disk to use")
    add("--out", type=Path, default=Path("target/soak"), help="where NAME.json is written")
    add("--table", type=Path, nargs="+", help="print the table of such files, and do nothing else")
    asked = parser.parse_args()
    if unknown := set(asked.only.split(",")) - set(PATHS):
        parser.error(f"there is no path {', '.join(sorted(unknown))}; there are {', '.join(PATHS)}")
    if asked.seed is None:
        asked.seed = random.SystemRandom().randrange(1 << 30)
        # Also for the process that goes on apart.
        sys.argv += ["--seed", str(asked.seed)]
    return asked


def _soak(name: str, asked: argparse.Namespace) -> int:
    """Failures of one path."""
    from soak.result import table
    from soak.run import Plan, run

    scenarios = importlib.import_module(f"soak.{name}.scenarios").SCENARIOS
    place = (asked.place / f"at-{name}").resolve()
    shutil.rmtree(place, ignore_errors=True)
    print(f"{name}: seed {asked.seed}, at {place}", file=sys.stderr, flush=True)
    numbers = None
    if asked.scenario is not None:
        numbers = range(asked.scenario, asked.scenario + 1)
    elif asked.each:
        numbers = range(len(scenarios))
    minutes = asked.minutes if numbers is None else None
    plan = Plan(name, scenarios, asked.seed, asked.kinds)
    result = run(plan, place, minutes=minutes, numbers=numbers)
    path = asked.out / f"{name}.json"
    result.write(path)
    print(f"\n{table([json.loads(path.read_text())])}\n\nwritten to {path}")
    for missing, times in result.not_here.items():
        print(f"not possible here, {times} times: {missing}")
    return result.failed


if __name__ == "__main__":
    sys.exit(main())
