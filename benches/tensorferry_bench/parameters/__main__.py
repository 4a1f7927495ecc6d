"""``python -m tensorferry_bench.parameters``."""

import sys

from tensorferry_bench.parameters.scale import SCALES
from tensorferry_bench.suite import Suite

SUITE = Suite(
    "tensorferry_bench.parameters",
    ("adamw", "halves", "disk", "shadow", "reserve"),
    SCALES,
    ("torch", "numpy", "deepspeed", "tensorferry"),
)

if __name__ == "__main__":
    sys.exit(SUITE.main())
