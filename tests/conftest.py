"""Settings for the whole suite: Matplotlib opens no window, PyTensor keeps its default backend."""

import os

# Before Matplotlib is imported anywhere, in the workers of pytest-xdist too.
os.environ["MPLBACKEND"] = "Agg"
