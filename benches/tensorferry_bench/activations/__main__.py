"""``python -m tensorferry_bench.activations``."""

import sys

from tensorferry_bench.activations.scale import SCALES
from tensorferry_bench.suite import Suite

SUITE = Suite(
    "tensorferry_bench.activations",
    ("mlp", "cnn", "transformer", "batch", "loss"),
    SCALES,
    ("torch", "numpy", "tensorferry"),
)

if __name__ == "__main__":
    sys.exit(SUITE.main())
