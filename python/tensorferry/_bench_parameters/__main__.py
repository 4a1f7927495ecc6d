"""``python -m tensorferry._bench_parameters``."""

import sys

from tensorferry._bench.suite import Suite
from tensorferry._bench_parameters.scale import SCALES

SUITE = Suite(
    "tensorferry._bench_parameters",
    ("adamw", "halves", "disk", "shadow", "reserve"),
    SCALES,
    ("torch", "numpy", "deepspeed", "tensorferry"),
)

if __name__ == "__main__":
    sys.exit(SUITE.main())
