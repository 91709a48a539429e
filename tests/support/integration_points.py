"""Weighted points on which a PyMC model's own density is integrated: lattices and known proposals.

Every builder takes (system, density, beta, rng) after its own settings and returns unconstrained
points (N, dim), the log of their weights, and the number of draws or None for a lattice. What a
proposal takes from the system under test need not be right: importance weights correct for it.
"""

from itertools import product

import numpy as np
import pymc as pm
import pytensor
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import graph_inputs
from scipy import stats
from scipy.special import gammaln, logit, logsumexp


def flattened(inputs, outputs):
    """Copies of both, without operations that are graphs: those are run point by point."""
    shared = [v for v in graph_inputs(outputs) if isinstance(v, SharedVariable)]
    graph = FunctionGraph([*inputs, *shared], outputs)
    while nodes := [node for node in graph.toposort() if isinstance(node.op, OpFromGraph)]:
        for node in nodes:
            graph.replace_all(zip(node.outputs, inline_ofg_node(node), strict=True))
    return graph.inputs[: len(inputs)], graph.outputs


class Density:
    """The model's own log prior and log likelihood at many points in one call."""

    def __init__(self, model):
        values = model.value_vars
        batched = [v.type.clone(shape=(None, *v.type.shape))() for v in values]
        by_name = {v.name: v for v in model.unobserved_value_vars}
        self.model = model
        self.names = [rv.name for rv in model.free_RVs]
        constrained = [by_name[name] for name in self.names]
        given, graphs = flattened(values, [model.varlogp, model.datalogp, *constrained])
        graphs = vectorize_graph(graphs, replace=dict(zip(given, batched, strict=True)))
        self.function = pytensor.function(
            batched, graphs, mode="FAST_COMPILE", on_unused_input="ignore"
        )

    def __call__(self, z):
        """Log prior (with Jacobian), log likelihood, constrained values at z of shape (N, dim)."""
        pieces, start = [], 0
        for v in self.model.value_vars:
            size = int(np.prod(v.type.shape, dtype=int))
            pieces.append(z[:, start : start + size].reshape(-1, *v.type.shape))
            start += size
        log_prior, log_likelihood, *values = self.function(*pieces)
        return log_prior, log_likelihood, dict(zip(self.names, values, strict=True))

    def from_prior(self, draws, seed):
        """Log likelihood at forward draws."""
        model = self.model
        values = pm.draw(model.free_RVs, draws, random_seed=seed, mode="FAST_COMPILE")
        inputs, outputs = [], []
        for rv in model.free_RVs:
            x = rv.type()
            transform = model.rvs_to_transforms[rv]
            inputs.append(x)
            outputs.append(x if transform is None else transform.forward(x, *rv.owner.inputs))
        batched = [x.type.clone(shape=(None, *x.type.shape))() for x in inputs]
        graphs = vectorize_graph(outputs, replace=dict(zip(inputs, batched, strict=True)))
        forward = pytensor.function(batched, graphs, mode="FAST_COMPILE")
        z = np.column_stack([np.reshape(v, (draws, -1)) for v in forward(*values)])
        return self(z)[1]


def lattice(lower, upper, points):
    """Trapezoidal rule in each coordinate."""

    def build(system, density, beta, rng):
        axis = np.linspace(lower, upper, points)
        z = np.array(list(product(axis, repeat=system.dim)))
        return z, np.full(len(z), system.dim * np.log(axis[1] - axis[0])), None

    return build


def square(panels, order):
    """Gauss-Legendre panels on a square box, taken to the logit scale that PyMC samples on."""

    def build(system, density, beta, rng):
        nodes, weights = np.polynomial.legendre.leggauss(order)
        u = ((np.arange(panels)[:, None] + 0.5 * (nodes + 1.0)) / panels).ravel()
        log_weight = np.log(np.tile(0.5 * weights / panels, panels)) - np.log(u) - np.log1p(-u)
        grid = np.stack(np.meshgrid(logit(u), logit(u), indexing="ij"), axis=-1)
        return grid.reshape(-1, 2), np.add.outer(log_weight, log_weight).ravel(), None

    return build


def adapted(n=20_000, rounds=3):
    """Draws from a multivariate t that importance sampling has fitted to pi_beta."""

    def build(system, density, beta, rng):
        mean, variance = _delta_method(system, beta)
        covariance = np.diag(variance)
        for _ in range(rounds):
            z, log_weight = _draw_t(mean, covariance, n, rng)
            log_prior, log_likelihood, _ = density(z)
            terms = log_prior + beta * log_likelihood + log_weight
            w = np.exp(terms - logsumexp(terms))
            mean = w @ z
            covariance = (z - mean).T @ ((z - mean) * w[:, None])
        return *_draw_t(mean, covariance, n, rng), n

    return build


def independent(n=2_000):
    """Draws from the normal with the stated moments."""

    def build(system, density, beta, rng):
        mean, variance = _delta_method(system, beta)
        sd = 1.02 * np.sqrt(variance)
        z = mean + sd * rng.normal(size=(n, system.dim))
        return z, -stats.norm.logpdf(z, mean, sd).sum(axis=1) - np.log(n), n

    return build


def tempered_components(scales, prior_sd, n=40_000):
    """Draws from the even mixture of prior * component^beta, which bounds the weights."""

    def build(system, density, beta, rng):
        scale = np.asarray(scales)
        prior_mean = np.resize([1.0, -2.0, 0.5], system.dim)
        to_mean = (prior_sd**2 + scale**2) / prior_sd**2
        means = prior_mean + to_mean[:, None] * (system.mode_centers - prior_mean)
        precision = prior_sd**-2 + beta / scale**2
        pull = (beta / scale**2 / precision)[:, None]
        centers = prior_mean + pull * (means - prior_mean)
        which = rng.integers(scale.size, size=n)
        noise = rng.normal(size=(n, system.dim))
        z = centers[which] + noise / np.sqrt(precision[which])[:, None]
        log_q = [
            stats.norm.logpdf(z, center, p**-0.5).sum(axis=1)
            for center, p in zip(centers, precision, strict=True)
        ]
        return z, np.log(scale.size) - logsumexp(log_q, axis=0) - np.log(n), n

    return build


def on_shells(radii, widths, n=40_000, half_width=6.0):
    """Draws around both shells, in the direction uniform and in the radius normal."""

    def build(system, density, beta, rng):
        dim, centers = system.dim, system.mode_centers
        sd = 1.1 * np.asarray(widths) / np.sqrt(beta)
        # The volume element moves the bulk of a shell outward.
        peak = np.asarray(radii) + (dim - 1) * sd**2 / np.asarray(radii)
        which = rng.integers(2, size=n)
        direction = rng.normal(size=(n, dim))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        radius = peak[which] + sd[which] * rng.normal(size=n)
        x = centers[which] + radius[:, None] * direction
        log_sphere = np.log(2.0) + 0.5 * dim * np.log(np.pi) - gammaln(0.5 * dim)
        r = np.linalg.norm(x[:, None, :] - centers, axis=2)
        log_q = stats.norm.logpdf(r, peak, sd) - log_sphere - (dim - 1) * np.log(r)
        log_q = logsumexp(log_q, axis=1) - np.log(2.0)
        inside = (np.abs(x) < half_width).all(axis=1)
        u = np.where(inside[:, None], 0.5 * (x / half_width + 1.0), 0.5)
        log_jacobian = np.sum(np.log(2.0 * half_width * u * (1.0 - u)), axis=1)
        log_weight = np.where(inside, -log_q - log_jacobian - np.log(n), -np.inf)
        return logit(u), log_weight, n

    return build


def given_tau(center, precision, prior_mean, prior_sd, centered, n=10_000):
    """Draws of log tau from a t, then of mu and the groups from dense Gaussian conditionals."""

    def build(system, density, beta, rng):
        mean, variance = system.moments(beta)["tau"]
        law = stats.t(3, loc=np.log(mean), scale=1.3 * np.sqrt(variance) / mean)
        s = law.rvs(n, random_state=rng)
        tau, groups = np.exp(s), len(center)
        design = np.zeros((n, groups, groups + 1))
        design[:, :, 0] = 1.0
        design[:, np.arange(groups), np.arange(1, groups + 1)] = tau[:, None]
        weighted = np.swapaxes(design, 1, 2) * (beta * np.asarray(precision))
        prior = np.diag(np.append(prior_sd**-2, np.ones(groups)))
        cholesky = np.linalg.cholesky(prior + weighted @ design)
        upper = np.swapaxes(cholesky, 1, 2)
        half = np.linalg.solve(cholesky, (weighted @ (center - prior_mean))[..., None])
        noise = rng.normal(size=(n, groups + 1, 1))
        latent = np.linalg.solve(upper, half + noise)[..., 0]
        log_q = law.logpdf(s) + stats.norm.logpdf(noise[..., 0]).sum(axis=1)
        log_q += np.log(np.diagonal(cholesky, axis1=1, axis2=2)).sum(axis=1)
        mu, raw = prior_mean + latent[:, :1], latent[:, 1:]
        if centered:
            raw, log_q = mu + tau[:, None] * raw, log_q - groups * s
        return np.column_stack([mu, s, raw]), -log_q - np.log(n), n

    return build


def given_scales(n_scales, design, y, law_given, n=10_000):
    """Draws of the first coordinates from t's, then of the rest from dense Gaussian conditionals.

    ``law_given(s)``, with s of shape (n, n_scales), returns the prior standard deviations of the
    columns of `design`, the noise, and what the model's own coordinates are divided by.
    """

    def build(system, density, beta, rng):
        location, variance = (a[:n_scales] for a in _delta_method(system, beta))
        law = stats.t(5, loc=location, scale=1.2 * np.sqrt(variance))
        s = law.rvs((n, n_scales), random_state=rng)
        prior_sd, noise, unit = law_given(s)
        k = (beta * np.ones(n) / noise**2)[:, None]
        precision = k[:, :, None] * (design.T @ design)
        precision += prior_sd[:, :, None] ** -2.0 * np.eye(design.shape[1])
        cholesky = np.linalg.cholesky(precision)
        pull = np.linalg.solve(cholesky, (k * (design.T @ y))[..., None])
        normal = rng.normal(size=pull.shape)
        w = np.linalg.solve(np.swapaxes(cholesky, 1, 2), pull + normal)[..., 0]
        log_q = law.logpdf(s).sum(axis=1) + stats.norm.logpdf(normal[..., 0]).sum(axis=1)
        log_q += np.log(np.diagonal(cholesky, axis1=1, axis2=2)).sum(axis=1)
        log_q += np.log(unit * np.ones_like(w)).sum(axis=1)
        return np.column_stack([s, w / unit]), -log_q - np.log(n), n

    return build


def _delta_method(system, beta):
    means, variances = [], []
    for rv in system.model.free_RVs:
        mean, variance = (np.ravel(a) for a in system.moments(beta)[rv.name])
        if system.model.rvs_to_transforms[rv] is not None:
            mean, variance = np.log(mean), variance / mean**2
        means.append(mean)
        variances.append(variance)
    return np.concatenate(means), np.concatenate(variances)


def _draw_t(mean, covariance, n, rng):
    df = 20
    law = stats.multivariate_t(mean, covariance * (df - 2) / df, df=df, seed=rng)
    z = law.rvs(n).reshape(n, -1)
    return z, -law.logpdf(z) - np.log(n)
