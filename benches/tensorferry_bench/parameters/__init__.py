"""The Python side of ``tensorferry bench parameters``: the optimizer, and models on a small device.

Private. How it is run and what it tells is in :mod:`tensorferry_bench`::

    ways    who takes the step              adamw    float32, state in memory
    turns   timing, and what is compared    halves   bfloat16 with float32 masters, in memory
    gpt     a model to be trained           disk     state on SSD, beside what the disk allows
    scale   how much of everything          shadow   parameters in host memory, under three plans
                                            reserve  how large a model runs in a budget

What is the same for all contestants: each has a process of its own that lives through all rounds,
the same parameters and gradients from the same seed, one warm step before the first timed one, and
torch's own number of threads. Turns alternate. DeepSpeed's ``CPUAdam`` takes part where it is
installed; it is compiled when it is first used, which needs a compiler.

Halves: tensorferry steps bfloat16 parameters with bfloat16 gradients and keeps masters. The others
step float32 masters, as training with them does, so each of their steps widens the gradients into
those of the masters and narrows the masters into the parameters.

Models on a small device compute with one thread, all of them: what is copied and updated meanwhile
needs a core of its own, as it has beside a real device. They warm up until the last plan is made.
"""
