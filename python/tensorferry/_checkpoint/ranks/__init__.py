"""Checkpoints of several ranks: a file for each, and an index that names them.

::

    save:  object --flatten--> Flat --divide--> own part --> model-00001-of-00004-g7n2.ferry
                                                                 all there? --survey--> model.ferry
    load:  model.ferry --Index--> which tensors, from which files --> pieces --build--> object

*States.* A save by all ranks has a token, which is part of its files' names and stands inside of
them. Until the files of all ranks with one token are there, the index at ``path`` is the old one
(or the plain file, or nothing), and what it names is untouched. Then the index is replaced as any
file of ours is, whole or not at all, and then the files that only the old one named are removed.

*Who belongs together* is agreed on in one of two ways.

``together``: torch.distributed is initialised for as many ranks. Rank 0 draws a token and tells the
others; all wait for each other; if one fails, all raise and each removes its file.

``alone``: nobody can be asked, and no call waits. The n-th call of each rank for a path belongs to
the n-th calls of the others: the token is the generation of the index that was there at this
process's first call (or of one that was moved aside, and still has its files here), plus n, and n.
All ranks see the same index at their first calls, since none can replace it before all have made
one. The rank that finds all files there makes the index; if two do at once, one of them does.
What could go wrong, and why nothing is ever mixed:

- *A job died between its saves, and the next one counts to the same token.* Every file says when it
  was begun, and who makes the index takes none that was begun before its own process started: a job
  starts after the one before it has ended. So the clocks of all hosts have to agree better than
  that, and no process may outlive one job and save in the next one to the same path. The price:
  ranks that start so late that others have saved already make no index of that save; the next one
  does.
- *A rank's save fails*, at whatever moment. Whether its next call repeats the one that failed or
  belongs to the others' next one can't be known, also where one process saves all ranks in turn. So
  it marks its tokens with a random text from then on, and no save of another rank matches them. The
  error says so, and every later save of that rank warns. It ends when all ranks are started again.
- *A rank does not come*, or calls less often than others: there is no index of that save, and the
  one before stays.

*Ownership.* Whoever replaces an index removes the files that it names and that were saved to this
path. Whoever can't make an index, though the files of all ranks are there, removes those: nobody
else makes it any more. While it decides, it holds the claim on them, and where nothing can be
claimed it leaves them. What a killed job, or one of which a rank has failed earlier, leaves behind
is named by no index, and is never read.

Nothing is imported here: most processes load and save without ranks, and would wait for it.
"""
