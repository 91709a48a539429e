"""Constants of these graphs are computed in Python, where PyTensor would compile C for each."""

from collections.abc import Iterator

import pytest
from pytensor import config


@pytest.fixture(autouse=True)
def no_c() -> Iterator[None]:
    """Keep PyTensor from calling a C compiler; nothing of it is in what Numba compiles."""
    with config.change_flags(cxx=""):
        yield
