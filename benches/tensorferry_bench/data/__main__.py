"""``python -m tensorferry_bench.data``."""

import sys

from tensorferry_bench.data.scale import SCALES
from tensorferry_bench.suite import Suite

SUITE = Suite(
    "tensorferry_bench.data",
    ("images", "arrays", "slow", "consumers", "beside"),
    SCALES,
    ("torch", "torchvision", "pillow", "numpy", "spdl", "webdataset", "dali", "tensorferry"),
)

if __name__ == "__main__":
    sys.exit(SUITE.main())
