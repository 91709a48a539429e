"""Data and published Bayes factors of R's packages BayesFactor and bridgesampling.

The data sets are those of R (`sleep`, `ToothGrowth`, `mtcars`, `attitude`), of BayesFactor
(`puzzles`) and of the texts that print the factors. A factor is given with the relative error that
R printed beside it; an error of 0 means "0 %", so that the rounding of the figure is all there is.
"""

from dataclasses import dataclass

import numpy as np

SLEEP = np.array([1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4])
"""R's `sleep` (Student 1908): hours of sleep won by drug 2 less those by drug 1, 10 patients."""

TOOTH_JUICE = np.array(
    [
        *(15.2, 21.5, 17.6, 9.7, 14.5, 10.0, 8.2, 9.4, 16.5, 9.7, 19.7, 23.3, 23.6, 26.4, 20.0),
        *(25.2, 25.8, 21.2, 14.5, 27.3, 25.5, 26.4, 22.4, 24.5, 24.8, 30.9, 26.4, 27.3, 29.4, 23.0),
    ]
)
TOOTH_ACID = np.array(
    [
        *(4.2, 11.5, 7.3, 5.8, 6.4, 10.0, 11.2, 11.2, 5.2, 7.0, 16.5, 16.5, 15.2, 17.3, 22.5),
        *(17.3, 13.6, 14.5, 18.8, 15.5, 23.6, 18.5, 33.9, 25.5, 26.4, 32.5, 26.7, 21.5, 23.3, 29.5),
    ]
)
"""R's `ToothGrowth` (Crampton 1947): lengths with orange juice, and with ascorbic acid."""

WEIGHT_MANUAL = np.array(
    [2.62, 2.875, 2.32, 2.2, 1.615, 1.835, 1.935, 2.14, 1.513, 3.17, 2.77, 3.57, 2.78]
)
WEIGHT_AUTOMATIC = np.array(
    [
        *(3.215, 3.44, 3.46, 3.57, 3.19, 3.15, 3.44, 3.44, 4.07, 3.73),
        *(3.78, 5.25, 5.424, 5.345, 2.465, 3.52, 3.435, 3.84, 3.845),
    ]
)
"""R's `mtcars` (Motor Trend 1974): weights of cars with a manual, and an automatic gear."""

ATTITUDE = {
    "rating": np.array(
        [
            *(43, 63, 71, 61, 81, 43, 58, 71, 72, 67, 64, 67, 69, 68, 77),
            *(81, 74, 65, 65, 50, 50, 64, 53, 40, 63, 66, 78, 48, 85, 82),
        ]
    ),
    "complaints": np.array(
        [
            *(51, 64, 70, 63, 78, 55, 67, 75, 82, 61, 53, 60, 62, 83, 77),
            *(90, 85, 60, 70, 58, 40, 61, 66, 37, 54, 77, 75, 57, 85, 82),
        ]
    ),
    "learning": np.array(
        [
            *(39, 54, 69, 47, 66, 44, 56, 55, 67, 47, 58, 39, 42, 45, 72),
            *(72, 69, 75, 57, 54, 34, 62, 50, 58, 48, 63, 74, 45, 71, 59),
        ]
    ),
    "critical": np.array(
        [
            *(92, 73, 86, 84, 83, 49, 68, 66, 83, 80, 67, 74, 63, 77, 77),
            *(54, 79, 80, 85, 78, 64, 80, 80, 57, 75, 76, 78, 83, 74, 78),
        ]
    ),
}
"""R's `attitude` (Chatterjee & Price 1977): ratings of 30 departments."""

PUZZLES = np.array(
    [
        [49, 47, 46, 47, 48, 47, 41, 46, 43, 47, 46, 45],
        [48, 46, 47, 45, 49, 44, 44, 45, 42, 45, 45, 40],
        [49, 46, 47, 45, 49, 45, 41, 43, 44, 46, 45, 40],
        [45, 43, 44, 45, 48, 46, 40, 45, 40, 45, 47, 40],
    ]
)
"""`puzzles` of BayesFactor (Hays 1994): seconds of 12 people, by (shape and color, person).

Rows: round in one color, square in one color, round in several, square in several.
"""

THETA_NORMAL = np.array(
    [
        *(1.19365332, 1.95745331, -0.72161754, -1.87380833, -1.16928239, 0.51960853, -0.03610041),
        *(0.42508815, 0.41119221, -0.8123698, 0.72967357, 3.48186722, 2.31126381, 2.00029422),
        *(-0.27643507, 1.0688237, -0.95083599, -1.89651101, 2.56019737, 0.2370306),
    ]
)
"""Simulated data of bridgesampling's hierarchical normal example, R's seed 12345."""

TABLE = np.array([[3, 4], [6, 9]])
"""Contingency table of BayesFactor's own tests."""


@dataclass(frozen=True)
class Published:
    """A published Bayes factor.

    Attributes
    ----------
    upper, lower : str
        Names of the two models.
    factor : float
    error : float
        R's relative error of it; 0 where R printed 0 %, NaN where it printed none.
    source : str
    """

    data: str
    upper: str
    lower: str
    factor: float
    error: float
    source: str


VIGNETTE = "bridgesampling, vignette of the t-test, 2019"
TIDYSTATS = "tidystats, stored results of BayesFactor 0.9.12-4.4"
EASYSTATS = "bayestestR, page of bayesfactor_models"
SNAPSHOT = "BayesFactor, snapshots of its tests"

PUBLISHED = (
    Published("sleep", "effect", "none", 17.25888, 0.0, f"BayesFactor in {VIGNETTE}"),
    Published("sleep", "effect", "none", 17.25678, float(np.hypot(4.9e-4, 6.55e-4)), VIGNETTE),
    Published("sleep", "positive", "none", 34.41694, np.nan, f"BayesFactor in {VIGNETTE}"),
    Published("sleep", "positive", "none", 34.42872, float(np.hypot(4.9e-4, 1.36e-3)), VIGNETTE),
    Published("ToothGrowth", "two means", "one", 1.198757, 1e-4, "ttestBF, as tutorials print it"),
    Published("mtcars", "two means", "one", 1383.367, 0.0, "tidyBF, README"),
    Published("attitude", "complaints", "none", 417938.631039, 8.1e-5, TIDYSTATS),
    Published("attitude", "complaints, learning", "none", 207271.902002, 2.1e-6, TIDYSTATS),
    Published("attitude", "learning", "none", 103.393019, 1.5e-5, TIDYSTATS),
    Published("attitude", "critical", "none", 0.449319, 1.4e-5, TIDYSTATS),
    Published("puzzles", "ID", "none", 111516.571808, 1.1e-6, TIDYSTATS),
    Published("puzzles", "ID, shape", "ID", 2.841658, 0.0092, EASYSTATS),
    Published("puzzles", "ID, shape, color", "ID", 11.75567, 0.0198, EASYSTATS),
    Published("puzzles", "ID, shape, color, both", "ID", 4.371906, 0.0199, EASYSTATS),
    Published(
        "hierarchical", "mean 0", "mean", 1.30343, float(np.hypot(1.43e-3, 1.64e-3)),
        "bridgesampling, vignette of the hierarchical normal model, 2019",
    ),
    Published("table", "rows differ", "rows alike", 0.5102335, 0.0, SNAPSHOT),
    Published("table", "dependent", "independent", 0.6530989, 0.0, SNAPSHOT),
    Published("coin, 60 of 100", "unknown", "fair", 1.594878, 0.0, "proportionBF, in a tutorial"),
    Published("coin, 0 of 100", "unknown", "fair", 2.609818e26, 0.0, SNAPSHOT),
)  # fmt: skip
