"""A handle of a compiled model, which every front door takes in place of the model."""

from dataclasses import dataclass
from typing import Any

import pymc as pm

from pymc_tempering.model.new_data import copy_with_data


@dataclass(frozen=True, eq=False)
class CompiledModel:
    """A model that is compiled, and one with other data where they are of the same shapes.

    Every function that takes `model=` takes this in its place. What was compiled belongs to the
    model object itself: passing the model finds it as well. A model that was changed since is
    compiled anew.

    Attributes
    ----------
    model : pymc.Model
    """

    model: pm.Model

    def with_data(self, **data: Any) -> "CompiledModel":
        """Handle of the same model with other data; this one stays as it is.

        Parameters
        ----------
        **data : array_like
            New values of observed variables and of `pm.Data`, by name, in the shapes of the old.

        Returns
        -------
        CompiledModel

        Raises
        ------
        DataMismatchError
            A name is unknown, or values have another shape or kind than those of the model.
        """
        return CompiledModel(copy_with_data(self.model, data))


ModelLike = pm.Model | CompiledModel
"""What every front door takes as `model`."""
