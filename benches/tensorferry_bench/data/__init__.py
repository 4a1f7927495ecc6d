"""The Python side of ``tensorferry bench data``: loaders beside one another.

Private. How it is run and what it tells is in :mod:`tensorferry_bench`::

    pictures  files to load               loaders   ours and the rivals', as users write them
    scale     how much of everything      images  arrays  slow  consumers  beside: the workloads

What is the same for all contestants: each lives in a process of its own; a turn makes a new loader
and closes it; the files are in the page cache; a batch is float32 in torch tensors, and nobody
looks at more of it than its shape. Turns alternate, and each round starts with another contestant.
Each rival gets its best: torch keeps its workers, DALI hands over memory that it will overwrite.
"""
