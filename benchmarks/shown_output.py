"""The two results that README and the page on estimators show as output, and their exact values."""

import numpy as np
import pymc as pm
from common import Row, parser, save
from scipy import integrate, stats

import pymc_tempering as pmt


def ridge() -> tuple[pm.Model, float]:
    """README's model, of which only the product of two probabilities matters; log Z by quadrature.

    The product of two uniform variables has the density -log(z).
    """
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1, shape=2)
        pm.Binomial("y", n=100, p=p[0] * p[1], observed=30)
    z, _ = integrate.quad(lambda q: -np.log(q) * stats.binom.pmf(30, 100, q), 0.0, 1.0)
    return model, float(np.log(z))


def row(page: str, call: str, evidence: pmt.evidence.Evidence, exact: float) -> Row:
    """One result beside its exact value; nats."""
    return {
        "page": page, "call": call, "log Z": f"{evidence.log_z:.4f}",
        "mcse": f"{evidence.mcse:.4f}", "exact": f"{exact:.4f}", "tours": evidence.n_tours,
    }  # fmt: skip


def main() -> None:
    args = parser(__doc__, 1).parse_args()
    quiet = {"random_seed": args.seed, "quiet": True, "progressbar": False}
    model, exact = ridge()
    shown = pmt.log_marginal_likelihood(pmt.sample(model=model, **quiet))
    print(shown)
    system = pmt.testsystems.gaussian_mixture()
    bracket = pmt.evidence.bracket(pmt.sample(1000, model=system.model, **quiet))
    print(bracket)
    rows = [
        row("README.md", "log_marginal_likelihood", shown, exact),
        row("docs/explanation/estimators.md", "bracket, lower", bracket.lower, system.log_evidence),
        row("docs/explanation/estimators.md", "bracket, upper", bracket.upper, system.log_evidence),
    ]
    settings = {"seed": str(args.seed), "run": "pmt.sample() by default"}
    save("shown_output", rows, args.out, "Results that the documentation shows", settings)


if __name__ == "__main__":
    main()
