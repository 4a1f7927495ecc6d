"""The random numbers of a worker process: torch's, so that augmentation repeats as torch's does."""

from __future__ import annotations

import random


def seed_worker(base_seed: int, worker: int) -> None:
    """Seeds the global generators of ``random``, torch and NumPy as torch seeds its worker."""
    import numpy as np
    import torch
    from torch.utils.data._utils.worker import _generate_state

    random.seed(base_seed + worker)
    torch.manual_seed(base_seed + worker)
    np.random.seed(_generate_state(base_seed, worker))  # type: ignore[no-untyped-call]
