"""The Python side of benchmarks whose contestants live in Python.

Private. A command starts the ``__main__`` of a package of workloads
(:mod:`tensorferry._bench_data`, :mod:`tensorferry._bench_activations`) and reads lines of JSON from
it: which versions are here, what is done next, and a table for each contest::

    suite    arguments, lines                table    what a contest came to
    bench    the directory, the steps        child    a process for each contestant
    contest  rounds and turns                cases    what a child can do
    usage    processor time and memory       largest  the largest size that fits
"""
