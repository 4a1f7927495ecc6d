"""``python -m tensorferry._bench_data``."""

import sys

from tensorferry._bench.suite import Suite
from tensorferry._bench_data.scale import SCALES

SUITE = Suite(
    "tensorferry._bench_data",
    ("images", "arrays", "slow", "consumers", "beside"),
    SCALES,
    ("torch", "torchvision", "pillow", "numpy", "spdl", "webdataset", "dali", "tensorferry"),
)

if __name__ == "__main__":
    sys.exit(SUITE.main())
