"""Learned models that several scripts share, kept in a folder between runs of these.

A file is named after all that its model depends on; change what learns it, and the folder has to
go. Without a folder a model is learned anew.
"""

import pickle
from collections.abc import Callable
from pathlib import Path


def kept[Model](folder: Path | None, name: str, learn: Callable[[], Model]) -> Model:
    """Return the model of a name, from the folder if it is there."""
    path = folder and folder / f"{name}.pickle"
    if path and path.exists():
        return pickle.loads(path.read_bytes())
    model = learn()
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(model))
    return model
