"""A pause of Python's search for garbage, while compilers make objects by the million."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_search_for_garbage() -> Iterator[None]:
    """Switch the search for circles of objects off, and on again if it was on.

    Each of its rounds looks at all objects that have lived for a while, those of the libraries
    among them. While models were compiled, a tenth of the time went into it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
