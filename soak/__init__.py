"""Hours of use in minutes: each path at work in processes of its own, disturbed at random.

::

    make soak                                   # all paths, 20 minutes each
    make soak SOAK_ONLY=checkpoint SOAK_MINUTES=2
    python -m soak --only data --seed 7 --scenario 41   # one scenario again

A *path* (``checkpoint``, ``data``, ``activations``, ``parameters``, ``engine``) is a package of two
modules. ``work`` has what child processes do, with checks inside. ``scenarios`` has what the parent
does: it starts children, disturbs them (kills, pauses, full disks, little memory) and judges::

    __main__ ─► run ─► scenario(stage) ─► stage.start(work, ...) ─► Child ··· its process: Tell
                 │            └─► kill, pause, Disk.fill, Group: judged by Failure
                 └─► Shown (a line), Result (table, JSON, exit code)

Scenario n of a seed is always the same draw, whatever came before it; *when* a kill hits is a
matter of the machine.
"""
