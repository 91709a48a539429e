"""Evidences of many regressions, which `past_one_machine.py` has sampled by the workers of Dask."""

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm
from common import Row
from distributed import Client
from scipy import stats

import pymc_tempering as pmt

COVARIATES, OBSERVATIONS, NOISE, PRIOR_SD = 10, 50, 1.0, 1.0


def regression() -> tuple[pm.Model, np.ndarray]:
    """Regression with known noise and a weight of 0 or 1 for each covariate."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(OBSERVATIONS, COVARIATES))
    with pm.Model() as model:
        used = pm.Data("used", np.ones(COVARIATES))
        coef = pm.Normal("coef", 0, PRIOR_SD, shape=COVARIATES)
        pm.Normal("y", (x * used) @ coef, NOISE, observed=np.zeros(OBSERVATIONS))
    return model, x


def exact(x: np.ndarray, y: np.ndarray) -> float:
    """Log evidence of the regression of y on x."""
    cov = NOISE**2 * np.eye(OBSERVATIONS) + PRIOR_SD**2 * x @ x.T
    return float(stats.multivariate_normal(np.zeros(OBSERVATIONS), cov).logpdf(y))


def many(
    datasets: dict[str, dict[str, np.ndarray]],
    truth: np.ndarray,
    client: Client,
    path: Path | None = None,
) -> tuple[Row, pd.DataFrame]:
    """Sample one regression with many data sets, and hold log Z against the exact ones."""
    model, _ = regression()
    settings = {"draws": 500, "random_seed": 1, "path": path, "save_draws": False}
    began = time.perf_counter()
    table = pmt.sample_many(model, datasets, executor=client.get_executor(), **settings)
    seconds = time.perf_counter() - began
    workers = len(client.scheduler_info(n_workers=-1)["workers"])
    z = (table.log_z.to_numpy() - truth) / table.mcse.to_numpy()
    return {
        "runs": len(table), "workers": workers, "failed": int((table.verdict == "failed").sum()),
        "not ok": int((~table.verdict.isin(["ok", "failed"])).sum()),
        "mean |error|": float(np.nanmean(abs(table.log_z - truth))),
        "largest |error|": float(np.nanmax(abs(table.log_z - truth))),
        "sd of z": float(np.nanstd(z)), "in 95 %": float(np.mean(abs(z) < 1.96)),
        "least ESS": float(table.ess.min()), "median s a run": float(table.seconds.median()),
        "first s": float(table.seconds.iloc[0]), "call s": seconds,
    }, table  # fmt: skip


def regressions(n: int, client: Client) -> list[Row]:
    """The same covariates with n responses, drawn from the model."""
    _, x = regression()
    rng = np.random.default_rng(7)
    ys = [x @ rng.normal(0, PRIOR_SD, COVARIATES) + rng.normal(0, NOISE, OBSERVATIONS)
          for _ in range(n)]  # fmt: skip
    row, _ = many(
        {str(i): {"y": y} for i, y in enumerate(ys)}, np.array([exact(x, y) for y in ys]), client
    )
    return [row]


def selection(bits_used: int, client: Client, path: Path | None) -> list[Row]:
    """All subsets of some covariates; the others are in no model."""
    _, x = regression()
    rng = np.random.default_rng(9)
    y = x[:, :3] @ [0.6, -0.4, 0.25] + rng.normal(0, NOISE, OBSERVATIONS)
    subsets = [np.arange(2**bits_used)[:, None] >> np.arange(bits_used) & 1][0].astype(float)
    used = np.zeros((len(subsets), COVARIATES))
    used[:, :bits_used] = subsets
    truth = np.array([exact(x * u, y) for u in used])
    names = ["".join(str(int(b)) for b in u[:bits_used]) for u in used]
    row, table = many(
        {n: {"used": u, "y": y} for n, u in zip(names, used, strict=True)}, truth, client, path
    )

    def inclusion(log_z: np.ndarray) -> np.ndarray:
        weight = np.exp(log_z - log_z.max())
        return weight @ subsets / weight.sum()

    apart = inclusion(table.log_z.to_numpy()) - inclusion(truth)
    return [row | {"largest error of an inclusion probability": float(abs(apart).max())}]
