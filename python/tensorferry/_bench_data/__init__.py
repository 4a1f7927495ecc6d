"""The Python side of ``tensorferry bench data``: loaders beside one another.

Private. The command starts this package and reads lines of JSON from it: which versions are here,
what is done next, and a table for each contest::

    __main__  arguments, lines            scale     how much of everything
    bench     the directory, the steps    table     what a contest came to
    contest   rounds and turns            child     a process for each contestant
    cases     what a child can do         usage     processor time and memory of processes
    pictures  files to load               loaders   ours and the rivals', as users write them
    images  arrays  slow  consumers       the workloads, each with its cases

What is the same for all contestants: each lives in a process of its own; a turn makes a new loader
and closes it; the files are in the page cache; a batch is float32 in torch tensors, and nobody
looks at more of it than its shape. Turns alternate, and each round starts with another contestant.
Each rival gets its best: torch keeps its workers, DALI hands over memory that it will overwrite.
"""
