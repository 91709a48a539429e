"""What the benchmarks use of the package that users do not import: all of it, by the modules.

Modules are imported when a name of theirs is first asked for, since scripts time imports.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "bridge.target": "find_target",
    "chain.chains": "ChainState clear_record make_runner new_record run_chains start_chain "
    "start_runs",
    "chain.loop": "N_STEPS Record",
    "chain.plan": "Plan",
    "core.weighting": "rung_probabilities",
    "evidence.rts": "rts_log_z",
    "kernels": "on_all",
    "model.car": "log_density_of",
    "model.compiled": "DENSITY MATRIX VECTOR",
    "model.constrain": "compile_constrain",
    "model.layout": "model_layout",
    "references.compile": "compile_model",
    "references.prior": "Prior",
    "sampling.call": "REFERENCES Call Job Options goal_of",
    "sampling.choose_plan": "choose_plan",
    "sampling.evaluated": "evaluate_states",
    "sampling.rounds": "Outcome estimate run_rounds",
    "sampling.climbs": "send_scouts",
    "warmup.warm_up": "warm_up",
}
"""Names of each module below `pymc_tempering`."""

MODULES = {
    "chains_module": "chain.chains",
    "choose_plan_module": "sampling.choose_plan",
    "compile_module": "references.compile",
    "finish_module": "sampling.finish",
    "loop_module": "chain.loop",
    "sample_module": "sampling.sample",
    "search_module": "sampling.search",
    "step_method_module": "sampling.step_method",
    "warm_up_module": "warmup.warm_up",
}
"""Modules in which scripts wrap a function, to see what goes through it."""

PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f"pymc_tempering.{MODULES[name]}")
    if name in PLACES:
        return getattr(import_module(f"pymc_tempering.{PLACES[name]}"), name)
    raise AttributeError(f"{name} is not one of the private names that the benchmarks use")
