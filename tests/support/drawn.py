"""What a picture drew, as numbers, whatever backend drew it."""

import numpy as np


def drawn(pc, visual, panel, part="", chain=None):
    """What one visual drew in one panel: a dict of the "none" backend, or a backend's artist."""
    picture = pc.viz[f"{visual}_{part}" if part else visual]["picture"]
    place = {"panel": panel} | ({} if chain is None else {"chain": chain})
    return picture.sel(place).item()


def points(artist):
    """Return x and y of a line or of dots, of any backend."""
    if isinstance(artist, dict):
        x, y = artist["x"], artist["y"]
    elif hasattr(artist, "get_offsets"):
        x, y = np.ma.filled(artist.get_offsets().astype(float), np.nan).T
    elif hasattr(artist, "get_data"):
        x, y = artist.get_data()
    elif hasattr(artist, "data_source"):
        x, y = artist.data_source.data["x"], artist.data_source.data["y"]
    else:
        x, y = artist.x, artist.y
    return np.atleast_1d(np.asarray(x, float)), np.atleast_1d(np.asarray(y, float))


def has_points(description):
    """Whether what the "none" backend describes is a line or dots."""
    return isinstance(description, dict) and description["function"] in ("line", "scatter")


def ends_of_segments(artist):
    """Return the two ends of separate lines, shape (2, n) each for x and y."""
    x, y = points(artist)
    return x.reshape(-1, 3)[:, :2].T, y.reshape(-1, 3)[:, :2].T


def all_drawn(pc):
    """Return every artist of a picture by (visual, panel, chain)."""
    found = {}
    for visual, node in pc.viz.children.items():
        picture = node.to_dataset().get("picture")
        if picture is None:
            continue
        chains = picture["chain"].values if "chain" in picture.dims else [None]
        for panel in picture["panel"].values:
            for chain in chains:
                place = {"panel": panel} | ({} if chain is None else {"chain": chain})
                artist = picture.sel(place).item()
                if artist is not None:
                    found[visual, str(panel), None if chain is None else int(chain)] = artist
    return found
