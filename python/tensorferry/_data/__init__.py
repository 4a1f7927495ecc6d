"""The parts of ``tensorferry.data``.

A loader's ``order`` says which samples come, an ``engine`` makes batches of them, an ``iteration``
stands between: it reads the order a little ahead, submits, and hands batches to the user::

    order ──► its order of one epoch ──► iteration ──submit──► run of an engine
                                          │   ◄───next────   threads, stream, or the core's
                                          └──► user;  position: what was yielded ──► state_dict()
"""
