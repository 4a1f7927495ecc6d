"""One rank of a training run under somebody else's trainer; prints which samples it saw.

``python framework_cases.py FRAMEWORK DIRECTORY DATASET...``, with torchrun's variables.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tensorferry as ferry
from tensorferry.data import Files, transforms

SAMPLES = 64
EPOCHS = 2


class Numbers(torch.utils.data.Dataset[torch.Tensor]):
    """Sample i is the number i."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index)])


class Named(Numbers):
    """As the Trainer wants them: arguments of the model by name."""

    def __getitem__(self, index: int) -> Any:
        return {"x": super().__getitem__(index)}


def loader_of(kind: str, directory: Path) -> ferry.DataLoader:
    """Of numbers that are counted from 1000 if the transform was not left out."""
    if kind == "python":
        return ferry.DataLoader(Numbers(), 8, True)
    if kind == "generator":
        return ferry.DataLoader(Numbers(), 8, True, generator=torch.Generator().manual_seed(3))
    if kind == "processes":
        return ferry.DataLoader(Numbers(), 8, True, num_workers=1, persistent_workers=True)
    if kind == "seeded":
        return ferry.DataLoader(Numbers(), 8, True, seed=5)
    if kind == "named":
        return ferry.DataLoader(Named(), 8, True)
    assert kind == "ours"
    add = transforms.Lambda(thousand_more)
    return ferry.DataLoader(Files(str(directory / "*.npy")), 8, True, transform=add, num_workers=1)


def thousand_more(number: torch.Tensor) -> torch.Tensor:
    return number + 1000


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        seen.extend(int(each) % 1000 for each in x.flatten())
        prepared.append(bool((x >= 1000).all()))
        return {"loss": self.layer(x).mean() * 0}


seen: list[int] = []
prepared: list[bool] = []


def lightning(kind: str, directory: Path) -> str:
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
            return self.net(batch)["loss"]  # type: ignore[no-any-return]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = pl.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ["WORLD_SIZE"]),
        max_epochs=EPOCHS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), loader_of(kind, directory))
    return type(trainer.train_dataloader).__module__


def accelerate(kind: str, directory: Path) -> str:
    from accelerate import Accelerator  # type: ignore[import-untyped]

    accelerator = Accelerator(cpu=True)
    net, loader = accelerator.prepare(Net(), loader_of(kind, directory))
    for _ in range(EPOCHS):
        for batch in loader:
            accelerator.backward(net(batch)["loss"])
    return type(loader.base_dataloader).__module__


def trainer(kind: str, directory: Path) -> str:
    from transformers import Trainer, TrainingArguments

    class Ours(Trainer):
        def get_train_dataloader(self) -> Any:
            return self.accelerator.prepare(loader_of(kind, directory))

    arguments = TrainingArguments(
        output_dir=str(directory / "out"),
        use_cpu=True,
        num_train_epochs=EPOCHS,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_strategy="no",
    )
    Ours(Net(), arguments).train()
    return "transformers"


def plain(kind: str, directory: Path) -> str:
    """A loop of one's own: the loader divides by itself."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
    loader, net = loader_of(kind, directory), Net()
    for _ in range(EPOCHS):
        for batch in loader:
            net(batch)
    return type(loader).__module__


FRAMEWORKS: dict[str, Callable[[str, Path], str]] = {
    "lightning": lightning,
    "accelerate": accelerate,
    "trainer": trainer,
    "plain": plain,
}


def main() -> None:
    framework, directory, *kinds = sys.argv[1:]
    told = {}
    for kind in kinds:
        torch.manual_seed(7)
        seen.clear()
        prepared.clear()
        loader = FRAMEWORKS[framework](kind, Path(directory))
        told[kind] = {"seen": list(seen), "prepared": all(prepared), "loader": loader}
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    print("\n" + json.dumps(told))


if __name__ == "__main__":
    main()
