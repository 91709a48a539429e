"""A Gaussian posterior in 500 dimensions with correlated variables: is the fit good enough there?

Groups of variables around means that are themselves unknown: `mean_g ~ N(0, 3^2)`, `theta_gi ~
N(mean_g, 1)`, `y_gi ~ N(theta_gi, noise^2)`. The posterior's covariance is diagonal plus one
factor a group, and the evidence is that of a multivariate normal. Beyond 200 dimensions the
fitted reference has scale matrices that are diagonal plus low rank; tours from the prior may not
come back in so many dimensions, so that "unchecked" is the verdict to expect.
"""

import warnings
from time import process_time
from typing import Any

import numpy as np
import pymc as pm
from common import Row, parser, save

import pymc_tempering as pmt

N_GROUPS, MEAN_SD, NOISE = 10, 3.0, 3.0


def grouped_normal(dim: int) -> tuple[pm.Model, float]:
    """Return a model of `dim` variables, and its log evidence."""
    size = dim // N_GROUPS - 1
    rng = np.random.default_rng(0)
    means = MEAN_SD * rng.standard_normal(N_GROUPS)
    theta = means[:, None] + rng.standard_normal((N_GROUPS, size))
    y = theta + NOISE * rng.standard_normal(theta.shape)
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.0, MEAN_SD, shape=N_GROUPS)
        group = pm.Normal("theta", mean[:, None], 1.0, shape=(N_GROUPS, size))
        pm.Normal("y", group, NOISE, observed=y)
    own, common = 1.0 + NOISE**2, MEAN_SD**2
    total = own + size * common  # eigenvalue along the mean of a group
    square = (y**2).sum(axis=1) - y.sum(axis=1) ** 2 / size
    along = y.sum(axis=1) ** 2 / size
    log_det = (size - 1) * np.log(own) + np.log(total)
    log_z = -0.5 * (size * np.log(2 * np.pi) + log_det + square / own + along / total)
    return model, float(log_z.sum())


def main() -> None:
    arguments = parser(__doc__, 10)
    arguments.add_argument("--dims", type=int, nargs="+", default=[100, 200, 300, 500])
    args = arguments.parse_args()
    rows: list[Row] = []
    for dim in args.dims:
        model, exact = grouped_normal(dim)
        answers: list[tuple[Any, ...]] = []
        for seed in range(args.seed - 1, args.seed + args.repeats):  # the first one compiles
            started = process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", pmt.TemperingWarning)
                idata = pmt.sample(
                    model=model, reference=args.reference, cores=1, random_seed=seed, quiet=True,
                    progressbar=False,
                )  # fmt: skip
                evidence = pmt.log_marginal_likelihood(idata)
            seconds = process_time() - started
            answers.append((evidence.log_z - exact, evidence.mcse, seconds, evidence.verdict,
                            idata["tempering"].sizes["rung"]))  # fmt: skip
            print(dim, seed, *answers[-1], flush=True)
        error, stated, seconds = np.array([answer[:3] for answer in answers[1:]]).T
        verdicts = [answer[3] for answer in answers[1:]]
        rows.append({
            "dim": dim, "n": len(error), "bias": float(error.mean()),
            "RMSE": float(np.sqrt(np.mean(error**2))), "stated": float(stated.mean()),
            "sd z": float((error / stated).std(ddof=1)),
            "rungs": float(np.mean([answer[4] for answer in answers[1:]])),
            "ok": verdicts.count("ok"), "unchecked": verdicts.count("unchecked"),
            "disagreed": verdicts.count("disagreed"), "seconds": float(np.median(seconds)),
        })  # fmt: skip
    settings = {
        "model": f"{N_GROUPS} groups of normals around unknown means; {grouped_normal.__doc__}",
        "run": f"pmt.sample(reference={args.reference!r}) and its evidence, all else by default",
        "seeds": f"{args.seed} to {args.seed + args.repeats - 1}",
        "seconds": "median CPU seconds of the process, from the call to the evidence",
    }
    save("high_dim", rows, args.out, "A correlated Gaussian posterior in many dimensions", settings)


if __name__ == "__main__":
    main()
