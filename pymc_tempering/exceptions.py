"""The exceptions and the warning that pymc_tempering raises, all under one base class."""


class TemperingError(Exception):
    """Base class of every exception that pymc_tempering raises on purpose."""


class ModelError(TemperingError):
    """The model cannot be tempered, or its evidence is not defined."""


class ImproperPriorError(ModelError):
    """The prior cannot be normalized, so a path from it has no evidence."""


class DiscreteVariableError(ModelError):
    """The model has discrete free variables that no kernel here can explore."""


class LikelihoodError(ModelError):
    """The log-likelihood is NaN, or the likelihood zero, at draws from the reference."""


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


class StuckChainError(TemperingError):
    """A chain did not come back to beta = 1 within its bound before its first draw."""


class TemperingWarning(UserWarning):
    """A result is usable only with care; the message says what to do about it."""
