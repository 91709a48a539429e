"""The exceptions and the warning that pymc_tempering raises, all under one base class."""


class TemperingError(Exception):
    """Base class of every exception that pymc_tempering raises on purpose."""


class ModelError(TemperingError):
    """The model cannot be tempered, or its evidence is not defined."""


class ImproperPriorError(ModelError):
    """The prior cannot be normalized, so a path from it has no evidence."""


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
    """A kernel of the user's own breaks the contract of a kernel."""


class NormalizerError(ModelError):
    """A likelihood term has no tempered normalizer, or none that is finite and reliable."""


class LadderError(TemperingError, ValueError):
    """The ladder is not increasing from beta = 0 to beta = 1, or not one ladder."""


class TemperatureError(TemperingError, ValueError):
    """Temperatures are below 1, do not begin at 1, or do not increase."""


class DataError(TemperingError, ValueError):
    """The data are not what a conjugate model describes: their shape, counts, or NaN."""


class NotTemperedError(TemperingError):
    """The DataTree lacks the statistics of a tempering run, or parts of them."""


class DataMismatchError(TemperingError):
    """Models that are compared have different observed data."""


class SolverError(TemperingError):
    """The equations of an estimator could not be solved to the accuracy that it needs."""


class StuckChainError(TemperingError):
    """A chain did not come back to beta = 1 within its bound before its first draw."""


class TemperingWarning(UserWarning):
    """A result is usable only with care; the message says what to do about it."""
