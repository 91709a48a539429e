"""A frozen plan comes back from JSON and arrays with all that its run still needs."""

from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from support.compiled_systems import prior

from pymc_tempering.kernels import HMC, Compound, on_all
from pymc_tempering.references.prior import Prior
from pymc_tempering.sampling.call import Job, Options
from pymc_tempering.sampling.choose_plan import choose_plan, more_looks, search_again
from pymc_tempering.sampling.kept import lasting, plan_codec, slim
from pymc_tempering.storage.plain_values import generator_from, state_of


def there_and_back(value, job):
    codec = plan_codec(job)
    return codec.from_bytes(codec.to_bytes(value))


def differences(a, b, place=""):
    """Places where two values differ in a bit."""
    if isinstance(a, Prior):
        return
    if isinstance(a, Compound):
        if a.dense_blocks != b.dense_blocks:
            yield place
    elif isinstance(a, np.ndarray):
        same = (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        if not (same and a.flags.c_contiguous == b.flags.c_contiguous):
            yield place
    elif is_dataclass(a):
        assert type(a) is type(b)
        for field in fields(a):
            pair = getattr(a, field.name), getattr(b, field.name)
            yield from differences(*pair, f"{place}.{field.name}")
    elif isinstance(a, (list, tuple)):
        assert (type(a), len(a)) == (type(b), len(b))
        for i, pair in enumerate(zip(a, b, strict=True)):
            yield from differences(*pair, f"{place}.{i}")
    elif not (a == b or (a != a and b != b)):
        yield place


def job_of(rng):
    compiled = prior("two_modes")
    return Job(compiled, on_all(HMC(), compiled.path.dim), Options(), rng)


@pytest.fixture(scope="module")
def chosen():
    return choose_plan(job_of(np.random.default_rng(1)))


def test_all_of_a_searched_plan_comes_back(chosen):
    assert chosen.fitted is not None
    kept = lasting(chosen)
    assert not list(differences(kept, there_and_back(kept, job_of(None))))
    changed = there_and_back(kept, job_of(None))
    changed.plan.ladder.betas[1] *= 1 + 1e-15
    changed.fit.draws.xs[3, 0] += 1e-15
    assert set(differences(kept, changed)) == {".plan.ladder.betas", ".fit.draws.xs"}


@pytest.mark.slow("compiles models of its own")
def test_what_comes_back_is_searched_again_in_the_same_way(chosen):
    """With the state of the generator: the fit, the looks and the new plan have the same bits."""
    rng = np.random.default_rng(2)
    rngs = [generator_from(state_of(rng)) for _ in range(2)]
    draws = chosen.fit.draws.xs[:200]
    plans = []
    for each, own in zip(
        (chosen, there_and_back(lasting(chosen), job_of(None))), rngs, strict=True
    ):
        looked = more_looks(job_of(own), each, 40_000)
        plans.append(lasting(search_again(job_of(own), looked, draws)))
    found = [d for d in differences(*plans) if "seconds" not in d]
    assert not found
    assert rngs[0].random() == rngs[1].random()


def test_a_slim_plan_has_its_check(chosen):
    back = there_and_back(slim(chosen), job_of(None))
    assert repr(back.fresh) == repr(chosen.fresh)  # of which a part may be no number
    assert not list(differences(back.plan, chosen.plan))
    assert back.fit is None
    assert back.passes.log_z.tolist() == chosen.passes.log_z.tolist()
    assert back.passes.particles.size == sum(one.log_ratio.size for one in back.passes.each) == 0
