"""All real models by name: a file of models is one line here."""

from benchmarks.models import (
    real_models_hierarchical,
    real_models_latent,
    real_models_regression,
    real_models_unseen_counts,
    real_models_unseen_growth,
    real_models_unseen_regression,
    real_models_unseen_series,
)
from benchmarks.models.real_models_entry import RealModel

FILES = (
    real_models_hierarchical,
    real_models_regression,
    real_models_latent,
    real_models_unseen_counts,
    real_models_unseen_growth,
    real_models_unseen_series,
    real_models_unseen_regression,
)
"""Files of models, each with a dict `MODELS`."""


def all_models() -> dict[str, RealModel]:
    """Join the models of all files."""
    found: dict[str, RealModel] = {}
    for file in FILES:
        twice = found.keys() & file.MODELS.keys()
        if twice:
            raise ValueError(f"{file.__name__} has models of a name that is taken: {twice}")
        found |= file.MODELS
    return found
