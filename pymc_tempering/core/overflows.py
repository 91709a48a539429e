"""What marks a prior whose draws overflow where the likelihood may not be zero, and its words."""

import math

OVERFLOWS = (0.0, math.inf)
"""Log of its normalizing constant and the error (nats), as nothing bounds what such draws carry."""

SENTENCE = (
    "Draws of the prior overflow, and the likelihood does not vanish toward there, so that nothing "
    "bounds what they carry: restrict the prior, or scale the model."
)
