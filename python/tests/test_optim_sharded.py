"""``ferry.optim`` on DTensors: under FSDP2, and as they are placed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_cases import run_ranks

SCRIPT = """
import os, sys, torch
from pathlib import Path
import torch.distributed as dist
sys.path.insert(0, {tests!r})
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://{meet}", rank=rank, world_size={ranks})
import sharded_cases
{calls}
dist.destroy_process_group()
print("same")
"""


@pytest.fixture(params=[1, 2])
def ranks(request: pytest.FixtureRequest) -> int:
    """How many."""
    found: int = request.param
    return found


def run(ranks: int, place: Path, calls: str) -> None:
    """Runs these on every rank."""
    tests = str(Path(__file__).parent)
    script = SCRIPT.format(tests=tests, meet=place / "meet", ranks=ranks, calls=calls)
    run_ranks(script, ranks)


def test_fsdp2_shards_take_the_steps_of_plain_tensors_bit_for_bit(
    ranks: int, tmp_path: Path
) -> None:
    calls = [
        f"sharded_cases.fsdp_steps_its_shards(torch.{dtype}, {state!r})"
        for dtype in ("float32", "bfloat16")
        for state in ("memory", f"ssd:{tmp_path}")
    ]
    run(ranks, tmp_path, "; ".join(calls))


def test_fsdp2_and_its_state_go_with_torchs_optimizer(ranks: int, tmp_path: Path) -> None:
    run(ranks, tmp_path, "sharded_cases.fsdp_goes_with_torchs_optimizer()")


def test_dtensors_of_any_placement_step_and_the_others_are_told(ranks: int, tmp_path: Path) -> None:
    calls = "sharded_cases.any_placement_steps(); sharded_cases.what_can_not_be_stepped_is_told()"
    run(ranks, tmp_path, calls)


def test_each_rank_resumes_the_state_of_its_shards(ranks: int, tmp_path: Path) -> None:
    run(ranks, tmp_path, f"sharded_cases.state_on_ssd_goes_on(Path({str(tmp_path)!r}))")
