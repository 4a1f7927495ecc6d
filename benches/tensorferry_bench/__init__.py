"""The Python side of tensorferry's benchmarks.

It is no part of the package that trains: ``pip install ./benches`` from a clone. The command
``tensorferry bench`` starts one of its modules and reads lines of JSON from it::

    data  activations  parameters    packages of workloads: contestants that take turns
    checkpoint                       one case each time it is asked
    tools                            how well the dictionary of tools chooses

What the packages of workloads share tells which versions are here, what is done next, and a table
for each contest::

    suite    arguments, lines                table    what a contest came to
    bench    the directory, the steps        child    a process for each contestant
    contest  rounds and turns                cases    what a child can do
    usage    processor time and memory       largest  the largest size that fits
"""
