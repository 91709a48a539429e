"""Compile the loops that runs share ahead: `python -m pymc_tempering.sampling.compile_ahead`.

For whoever sets the package up or builds a wheel of it. See `pymc_tempering.model.ahead`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from pymc_tempering.chain.carry import carry_states
from pymc_tempering.chain.loop import run
from pymc_tempering.chain.particles import sweep_states
from pymc_tempering.kernels import HMC
from pymc_tempering.kernels.compound import on_all
from pymc_tempering.model.ahead import FOLDER
from pymc_tempering.model.blas import product
from pymc_tempering.model.jit import compile_ahead
from pymc_tempering.references.compiled_mixture import evaluate_rows, to_mixture
from pymc_tempering.references.conditional_scoring import score_all
from pymc_tempering.references.warp import unwarp


def shared_functions() -> Iterator[Callable]:
    """Functions that most first calls of `sample` need, and that are the same for all models."""
    yield from (run, sweep_states, carry_states, evaluate_rows, to_mixture, score_all, unwarp)
    yield product
    yield on_all(HMC(), 1).explore


def main() -> None:
    """Write an entry of each, and remove those of other sources and versions."""
    written = {compile_ahead(function) for function in shared_functions()}
    for file in FOLDER.iterdir() if FOLDER.is_dir() else ():
        if file not in written:
            file.unlink()
    kept = [file for file in written if isinstance(file, Path)]
    size = sum(file.stat().st_size for file in kept)
    print(f"{len(kept)} functions compiled ahead, {size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
