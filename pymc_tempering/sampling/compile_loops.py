"""The loops of a run, compiled before its clock starts."""

from pymc_tempering.chain.carry import carry_states
from pymc_tempering.chain.loop import run
from pymc_tempering.chain.particles import sweep_states
from pymc_tempering.kernels import Compound
from pymc_tempering.model.jit import compile_now
from pymc_tempering.model.path import Path
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
