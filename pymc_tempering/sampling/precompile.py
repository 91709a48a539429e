"""What is compiled before it is needed: a model ahead of calls, and the loops of a run."""

from collections.abc import Sequence

import pymc as pm

from pymc_tempering.chain.loop import run
from pymc_tempering.chain.particles import carry_states, sweep_states
from pymc_tempering.kernels import Compound
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.kernels.compiled_model import compile_with_kernels
from pymc_tempering.model.check import find_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.model.jit import compile_now
from pymc_tempering.model.path import Path
from pymc_tempering.model.terms import find_terms
from pymc_tempering.references.compiled_mixture import MIXER
from pymc_tempering.references.conditional_scoring import score_all
from pymc_tempering.sampling.call import Options
from pymc_tempering.warmup.log_z_rounds import adapt


def compile_loops(path: Path, kernel: Compound, options: Options) -> None:
    """Compile the loops that a run calls, or find them on disk.

    Each would be compiled at its first call, and that time would count for `max_time`.
    """
    loops = [run, sweep_states]
    if path.fittable and options.reference != "prior":  # looks, and the fit of a warp
        loops += [carry_states, score_all]
        MIXER.__wrapper_address__()  # compiles it
    if options.weight_adaptation != "rts":
        loops.append(adapt)
    compile_now(kernel.explore, *loops)


def compile(
    model: pm.Model | CompiledModel | None = None,
    *,
    kernel: KernelChoice = None,
    tempered: Sequence[str] | None = None,
    progressbar: bool = True,
) -> CompiledModel:
    """Compile a model ahead of the calls that need it, and check it at draws from its prior.

    What is compiled is kept as long as the model object lives, and every function of this package
    finds it there, whether it is given the handle or the model. So no call needs this one; it
    moves the waiting to a place of your choice, and its handle can be given other data.

    Parameters
    ----------
    model : pymc.Model or CompiledModel, optional
        By default the model on the context stack.
    kernel : str, Kernel or dict, optional
        As in :func:`sample`. Other kernels than these may need another part of the model, which
        is compiled when they are first used.
    tempered : sequence of str, optional
        As in :func:`sample`.
    progressbar : bool, default True
        Whether to show a line of progress.

    Returns
    -------
    CompiledModel

    Raises
    ------
    ModelError, DiscreteVariableError, ImproperPriorError, LikelihoodError
        The model cannot be tempered; the message says why and what to do.

    Examples
    --------
    >>> import pymc as pm, pymc_tempering as pmt
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 10)
    ...     y = pm.Normal("y", mu, 1, observed=[1.0, 2.0])
    >>> handle = pmt.compile(model, progressbar=False)
    >>> idata = pmt.sample(500, model=handle.with_data(y=[3.0, 4.0]), random_seed=1, quiet=True)
    >>> idata.observed_data["y"].values
    array([3., 4.])
    """
    model = find_model(model)
    with compiling_status(progressbar) as report:
        compile_with_kernels(model, kernel, 0.8, report, terms=find_terms(model, tempered))
    return CompiledModel(model)
