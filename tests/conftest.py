"""Settings for the whole suite: no windows, quick compilers, files by length.

Matplotlib opens no window, and PyTensor keeps its default backend.
"""

import gc
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from support.module_lookup import find_modules_by_address

find_modules_by_address()

# Before Matplotlib is imported anywhere, in the workers of pytest-xdist too.
os.environ["MPLBACKEND"] = "Agg"

# Before PyTensor is imported: for its messages it notes where each variable was made, which takes
# a twentieth of the suite's time.
os.environ.setdefault("PYTENSOR_FLAGS", "traceback__limit=0")

# Compilers make objects by the million that refer to each other. Looking for those that nothing
# uses any more took a tenth of the suite's time, so it is done at the end of each file alone.
gc.set_threshold(0)

# Python started with SIGINT ignored, as by `&` in a script, would not see the interrupts of tests.
signal.signal(signal.SIGINT, signal.default_int_handler)


def collect_garbage() -> None:
    """Look through what was made since the last time; what is left stays for good."""
    gc.collect()
    gc.freeze()


def keep_from_c() -> None:
    """Run inner functions of what is compiled with mode="FAST_COMPILE" in Python, like the rest.

    PyTensor would call a C compiler for each of their operations, and they run once or twice here.
    """
    from pytensor.compile.mode import predefined_linkers
    from pytensor.link.vm import VMLinker

    predefined_linkers["vm"] = VMLinker(use_cloop=False, c_thunks=False)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Set PyTensor up, once it is imported; leave that out of all further searches for garbage."""
    keep_from_c()
    collect_garbage()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Collect the garbage of a file when its last test has ended."""
    if nextitem is None or nextitem.path != item.path:
        collect_garbage()


# The first file compiles most of the package's loops, and those of the folder after it compile
# none: so two workers with empty caches do not compile the same ones side by side. Then the files
# that take longest, so that no worker is left alone with one at the end.
FIRST = (
    "test_front_doors.py",
    "variational",
    "test_documentation.py",
    "test_model_kinds.py",
    "test_annealed_discrete.py",
    "test_search.py",
    "test_custom_kernels.py",
    "test_log_draws.py",
)
# Folders whose files take seconds. With them at the end, both workers end together.
LAST = ("storage", "core")


def order_of(path: Path) -> int:
    """Place of a file among the others; most have the same one."""
    for name in (path.name, *(folder.name for folder in path.parents)):
        if name in FIRST:
            return FIRST.index(name) - len(FIRST)
    return LAST.index(path.parent.name) + 1 if path.parent.name in LAST else 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files, and let the quick cases of slow tests be no slow ones."""
    seen: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("slow")
        if marker is not None and "[" in item.name:
            name, case = item.nodeid.split("[", 1)
            every = marker.kwargs.get("every")
            if case[:-1] in marker.kwargs.get("quick", ()) or (every and seen[name] % every == 0):
                item.own_markers = [mark for mark in item.own_markers if mark.name != "slow"]
            seen[name] += 1
    items.sort(key=lambda item: order_of(Path(item.path)))
