"""Linear algebra on one thread: at the size of a fit, thread pools cost far more than they save."""

import sys
from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController


def one_thread() -> AbstractContextManager[object]:
    """Keep the libraries of linear algebra that are loaded to one thread, in a `with` block."""
    return _controller("sklearn" in sys.modules).limit(limits=1)


@cache
def _controller(with_sklearn: bool) -> ThreadpoolController:
    """Find the libraries, which takes 10 ms; scikit-learn brings one more with it."""
    return ThreadpoolController()
