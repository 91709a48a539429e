"""Private parts of other libraries that the package uses, under names of our own.

A name that begins with an underscore, or that lies in `numba.core` or `pytensor.link`, may change
in any release. `tests/project/test_borrowed.py` holds that no other folder uses one, and says of
each part that is gone or has changed what needs it.
"""
