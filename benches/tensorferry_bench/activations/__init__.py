"""The Python side of ``tensorferry bench activations``: training with activations on disk.

Private. How it is run and what it tells is in :mod:`tensorferry_bench`::

    networks  what is trained              ways     plain, with tensorferry, with files by hand
    training  a step, its time and memory  memory   of a process
    scale     how much of everything       mlp  cnn  transformer  batch  loss: the workloads

What is the same for all contestants: each turn is a process of its own that trains the same network
from the same seed on the same batch; memory is what the process had at most above what it had once
the model, its gradients and the optimizer's state were there and everything had run once with two
samples; gradients are compared by a checksum of all of them after the last step.

The rival is what a user writes with torch's own hooks: ``torch.save`` and ``torch.load`` of each
saved tensor, from the same size on as ours, never of parameters. torch's ``save_on_cpu`` is no
rival here: on a machine without an accelerator it copies each tensor to where it is already.
"""
