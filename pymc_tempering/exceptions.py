"""The exceptions of pymc_tempering, all under one base class, and its warning."""

import os
import warnings

PACKAGE = os.path.dirname(__file__) + os.sep


class TemperingError(Exception):
    """Base class of every exception that pymc_tempering raises on purpose."""


class ModelError(TemperingError):
    """The model cannot be tempered, or its evidence is not defined."""


class ImproperPriorError(ModelError):
    """The prior cannot be normalized, so a path from it has no evidence."""


class PriorDrawsError(ModelError):
    """Draws of a proper prior cannot be used: they leave floating point, or have no density."""


class UndrawableError(ImproperPriorError):
    """The prior of some variables has a density and no random draws.

    Attributes
    ----------
    names : tuple of str
        These variables.
    """

    def __init__(self, message: str, names: tuple[str, ...]) -> None:
        super().__init__(message)
        self.names = names

    def __reduce__(self) -> tuple[type, tuple[str, tuple[str, ...]]]:
        return type(self), (str(self), self.names)


class DiscreteVariableError(ModelError):
    """The model has discrete free variables that no kernel here can explore."""


class GradientError(ModelError):
    """The log density has no gradient in some variable that a kernel needs it in."""


class LikelihoodError(ModelError):
    """The log-likelihood is NaN, or the likelihood zero, at draws from the reference."""


class KernelError(TemperingError):
    """A user's own kernel breaks the contract of a kernel."""


class NormalizerError(ModelError):
    """A likelihood term has no tempered normalizer, or none that is finite and reliable."""


class LadderError(TemperingError, ValueError):
    """The inverse temperatures do not increase from 0 to 1, or chains have different ladders."""


class TemperatureError(TemperingError, ValueError):
    """Temperatures are below 1, do not start at 1, or do not increase."""


class DataError(TemperingError, ValueError):
    """The data do not fit a conjugate model: their shape, their counts, or NaN."""


class NotTemperedError(TemperingError):
    """The DataTree lacks the statistics of a tempering run, or parts of them."""


class DataMismatchError(TemperingError):
    """Models that are compared have different observed data."""


class NullError(TemperingError, ValueError):
    """A point null that the model does not have, or that the draws can say nothing about."""


class SolverError(TemperingError):
    """The equations of an estimator could not be solved to the accuracy that it needs."""


class ArgumentError(TemperingError, TypeError):
    """An argument that a function does not take; the message says why, or what stands in for it."""


class CheckpointError(TemperingError):
    """A checkpoint cannot be written or read, or is not one of this model, data and version."""


class FolderError(TemperingError, OSError):
    """A folder that compiling needs is missing, or cannot be written to."""


class StuckChainError(TemperingError):
    """Before its first draw a chain did not reach beta = 1 within the allowed iterations."""


class TimeLimitError(TemperingError, TimeoutError):
    """`max_time` was over before there was anything to return."""


class WorkerError(TemperingError):
    """The workers of an executor cannot do the work: lost, broken, or of other versions."""


class TemperingWarning(UserWarning):
    """A result is usable only with care; the message says what to do about it."""


def warn_user(message: str) -> None:
    """Give a TemperingWarning at the line that called this package."""
    warnings.warn(message, TemperingWarning, skip_file_prefixes=(PACKAGE,))
