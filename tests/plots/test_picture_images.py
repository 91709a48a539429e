"""Each picture looks as it did when it was looked at: Matplotlib's images beside stored ones.

Fonts must not matter, so the images have no texts, no legends, and a layout that makes no room for
them; test_pictures.py holds the words. The tolerance is a root mean square difference of gray
levels (0 to 255): two suspects that are left out make 5, dots of half the size 2, another font 0.
To store new images, and look at each: ``pytest tests/plots/test_picture_images.py
--mpl-generate-path=tests/plots/baseline``.
"""

import pytest
from support import gallery, picture_runs

TOLERANCE = 1.5
BARE = {
    "backend": "matplotlib",
    "visuals": dict.fromkeys(("xlabel", "ylabel", "legend", "title"), False),
    "figure_kwargs": {"layout": "none"},
}
IMAGE = {
    "remove_text": True,
    "tolerance": TOLERANCE,
    "savefig_kwargs": {"dpi": 45},
    "style": "default",
}


@pytest.fixture(scope="module")
def runs():
    return {
        "fitted": picture_runs.fitted_run(4),
        "prior": picture_runs.prior_run(4),
    }


def without_texts(pc):
    """The figure, without what is written inside its panels."""
    figure = pc.viz["figure"].item()
    for ax in figure.axes:
        for text in list(ax.texts):
            text.remove()
    return figure


def of_runs():
    for name in gallery.OF_RUNS:
        for kind in ("prior", "fitted"):
            if kind == "fitted" or not name.startswith("looks"):
                yield name, kind


@pytest.mark.slow("picture backends", quick=["round_trips-prior"])
@pytest.mark.parametrize(("name", "kind"), list(of_runs()))
@pytest.mark.mpl_image_compare(**IMAGE)
def test_picture_of_a_run(runs, name, kind):
    return without_texts(gallery.OF_RUNS[name](runs[kind], **BARE))


@pytest.mark.parametrize("name", list(gallery.OF_RESULTS))
@pytest.mark.mpl_image_compare(**IMAGE)
def test_picture_of_a_result(name):
    return without_texts(gallery.OF_RESULTS[name](**BARE))
