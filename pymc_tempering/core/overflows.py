"""The mark of a prior whose draws overflow where the likelihood is not known to be zero."""

import math

OVERFLOWS = (0.0, math.inf)
"""Log of its normalizing constant and the error (nats), as nothing bounds what such draws carry."""
