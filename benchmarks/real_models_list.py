"""All real models by name: a file of models is one line here."""

import real_models_hierarchical
import real_models_latent
import real_models_regression
from real_models_entry import RealModel

FILES = (real_models_hierarchical, real_models_regression, real_models_latent)
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
