"""``python -m tensorferry._bench_activations``."""

import sys

from tensorferry._bench.suite import Suite
from tensorferry._bench_activations.scale import SCALES

SUITE = Suite(
    "tensorferry._bench_activations",
    ("mlp", "cnn", "transformer", "batch", "loss"),
    SCALES,
    ("torch", "numpy", "tensorferry"),
)

if __name__ == "__main__":
    sys.exit(SUITE.main())
