"""Layers, where they are, and their gradients in a training loop; the bytes are the core's.

::

    module called ──► runtime ──► engine.enter ──► parameters point there ──► torch computes
                         │                                                          │
                         ├── saved: what autograd keeps of a parameter is its name  │
                         ├── backward: where it is, by marks at outputs of layers ◄─┘
                         ├── gradients: leave for host memory, come back as ``.grad``
                         └── updates: on arrival, or in ``optimizer.step()``

===========================================  ===================
what                                         file
===========================================  ===================
host memory of parameters and gradients      ``host_memory.py``
who moves as a whole                         ``layers.py``
which layer owns what, and where it is       ``placement.py``
layers that forward is in                    ``forward_stack.py``
parameters that a forward writes to          ``writes.py``
what autograd saves                          ``saved.py``
where backward is                            ``backward.py``
gradients on their way                       ``gradients.py``
who updates, and when                        ``updates.py``
updates during backward                      ``arrival.py``
whether gradients or parameters are changed  ``snapshots.py``
seconds of layers                            ``clock.py``
what is planned with                         ``profile.py``
from unknown layers to a plan                ``stages.py``
an iteration                                 ``runtime.py``
what it came to                              ``report.py``, ``summary.py``
what can't be wrapped, or changed then       ``refusal.py``
what a device is called                      ``device.py``
hooks that can be ended                      ``hook.py``
===========================================  ===================

*States.* A runtime discovers layers in its first iteration, profiles a few, then runs a plan, which
it makes once more from what it measures in the first planned iterations. It starts again where a
module is called that never was, or other parameters need gradients.

*Ownership.* Between iterations every parameter points to host memory. Who enters a layer points its
parameters elsewhere, and points them back when it leaves. Nothing here holds the wrapper around the
model: when nobody else does, threads and device go, and parameters stay in host memory.
"""
