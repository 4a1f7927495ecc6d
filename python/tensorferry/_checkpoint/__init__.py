"""The rooms of the checkpoint path; what users call is in ``tensorferry.checkpoint``.

::

    save:  object --flatten--> Flat --tool--> file
    load:  file --recognise--> tool --> stored tensors --build, place--> object
"""
