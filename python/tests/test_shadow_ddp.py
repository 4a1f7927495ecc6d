"""Ranks that average their gradients train as they do without a shadow."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_cases import run_two_ranks

SCRIPT = """
import os, sys, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
sys.path.insert(0, {tests!r})
import tensorferry as ferry
from shadow_cases import Gpt, cnn, forced, loop, ours, pictures, sentences, shadowed, trained
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://{meet}", rank=rank, world_size=2)
torch.set_num_threads(1)

def ranked(batch):
    return lambda step: batch(100 * step + rank)

def accumulating(model, optimizer, batch, steps):
    losses = []
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        with model.no_sync():
            torch.nn.functional.cross_entropy(model(x), y).backward()
        x, y = batch(-step)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

def wrapped(shadow):
    def wrap(model, optimizer):
        inner = model if shadow is None else shadow(model, optimizer)
        return DistributedDataParallel(inner, **{options!r})
    return wrap

for run in (loop, accumulating):
    for make, batch in ((cnn, pictures), (Gpt, sentences)):
        shadow = shadowed(_planning=forced(["gfgb", "dha", "dfgb"], {gradient!r}))
        mine = trained(make, ranked(batch), wrapped(shadow), run=run, steps=12)
        other = trained(make, ranked(batch), wrapped(None), run=run, steps=12)
        assert mine.losses == other.losses, (mine.losses, other.losses)
        assert list(mine.parameters) == list(other.parameters)
        for name, tensor in mine.parameters.items():
            assert torch.equal(tensor, other.parameters[name]), name
        report = mine.model.module.report()
        assert (report.stage, report.update) == ("planned", "step")
        assert report.update_why == "the model is in DistributedDataParallel" or run is not loop
        mine.model.load_state_dict(other.parameters)

try:
    trained(Gpt, ranked(sentences), wrapped(shadowed(update="arrival")), steps=1)
except ferry.Unsupported as error:
    assert 'pass update="step"' in str(error)
else:
    raise AssertionError
dist.destroy_process_group()
print("same")
"""


@pytest.mark.parametrize("gradient", ["device", "host"])
@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}])
def test_two_ranks_of_ddp(gradient: str, options: dict[str, bool], tmp_path: Path) -> None:
    given = {
        "tests": str(Path(__file__).parent),
        "meet": tmp_path / "meet",
        "gradient": gradient,
        "options": options,
    }
    script = SCRIPT.format(**given)
    run_two_ranks(script)
