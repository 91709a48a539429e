"""What was edited in a file, with checksums that fit it, is refused before compiled code runs."""

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from support.kept_checkpoints import run

import pymc_tempering as pmt
from pymc_tempering.chain import loop
from pymc_tempering.exceptions import CheckpointError
from pymc_tempering.kernels.contract import on_all
from pymc_tempering.kernels.hmc import HMC
from pymc_tempering.references.mixture import FullScales, Mixture
from pymc_tempering.references.warp import FunnelWarp
from pymc_tempering.sampling import kept, restart
from pymc_tempering.sampling.check_kept import check_plan
from pymc_tempering.sampling.kept import PLAN_GROUP
from pymc_tempering.storage.checkpoint_folder import HEADS, Head, known_folder
from pymc_tempering.storage.plain_values import generator_from, pack, state_of, unpack

pytestmark = pytest.mark.filterwarnings("ignore:The draws tell too little")

OPTIONS = {"draws": 60, "chains": 2, "reference": "fitted", "check_looks": 20}


@pytest.fixture(scope="module")
def finished(model, tmp_path_factory):
    """Run, and the folder of its last checkpoint."""
    path = tmp_path_factory.mktemp("edited") / "run.zarr"
    return run(model, path, **OPTIONS), path


def edited(path, part, change):
    """Change the JSON and the arrays of a part of a checkpoint, and redo the checksums."""
    with known_folder(path) as folder:
        head, found, _ = folder.newest()
        plain, arrays = unpack(found[part][-1])
        change(plain, arrays)
        last = folder.add(part, pack(plain, arrays))
        folder.commit(Head(head.number + 1, head.parts | {part: [*head.parts[part][:-1], last]}))
    return path


def edited_tree(idata, part, change):
    """Change the same in a DataTree."""
    tree = idata.copy()
    group = tree[PLAN_GROUP].to_dataset()
    plain, arrays = unpack(group[part].values.tobytes())
    change(plain, arrays)
    content = np.frombuffer(pack(plain, arrays), dtype=np.uint8)
    tree[PLAN_GROUP] = xr.DataTree(group.drop_vars(part).assign({part: ("bytes", content)}))
    return tree


def counter(at, value):
    def change(plain, arrays):
        arrays["pieces.0.state.chain.counters"][at] = value

    return change


def cut(name):
    """Leave the last row of an array out."""

    def change(plain, arrays):
        arrays[name] = arrays[name][:-1]

    return change


def as_columns(name):
    """Let the numbers of an array lie in the order of the columns."""

    def change(plain, arrays):
        wide = np.hstack([arrays[name], arrays[name]])
        arrays[name] = np.asfortranarray(wide)[:, : wide.shape[1] // 2]

    return change


def lowest(plain, arrays):
    arrays["pieces.0.state.chain.scalars"][loop.LOWEST] = 99.0


CHAINS = {
    "rung": (counter(loop.RUNG, 10**7), r"counters \(rung\) is 10000000"),
    "rung below 0": (counter(loop.RUNG, -1), r"counters \(rung\) is -1"),
    "direction": (counter(loop.DIRECTION, 10**7), r"counters \(direction\)"),
    "tour": (counter(loop.AWAITS_TOUR, 7), r"counters \(tour\)"),
    "references": (counter(loop.REF_USED, -(10**7)), r"counters \(reference draws used\)"),
    "draws": (counter(loop.N_DRAWS, 10**12), r"counters \(draws\)"),
    "draws below 0": (counter(loop.N_DRAWS, -5), r"counters \(draws\)"),
    "trace": (counter(loop.N_TRACE, -(10**7)), r"counters \(iterations in the trace\)"),
    "lowest": (lowest, r"scalars \(lowest rung\) is 99"),
    "counters": (cut("pieces.0.state.chain.counters"), r"counters has another .*counters: 7"),
    "state": (cut("pieces.0.state.chain.point.0"), r"point\.x has another .*coordinates: 2"),
    "sums": (cut("pieces.0.state.chain.per_rung"), r"chain\.per_rung has another"),
    "acceptance": (cut("pieces.0.state.chain.accept"), r"chain\.accept has another"),
    "record": (cut("pieces.0.record.scalars"), r"record\.scalars has another"),
    "order": (as_columns("pieces.0.state.references"), r"state\.references has another"),
}
PLANS = {
    "ladder": (cut("plan.ladder.log_z"), r"ladder\.log_z has another form .*rungs"),
    "tuning": (cut("plan.tuning.scales"), r"tuning\.scales has another form .*coordinates: 2"),
    "covariances": (cut("plan.tuning.covs.0"), r"tuning\.covs does not fit"),
    "means": (cut("plan.reference.components.means"), r"components\.means has another"),
    "scales": (cut("plan.reference.components.scales.cholesky"), r"cholesky has another"),
    "particles": (cut("warmup.annealed.betas"), r"annealed\.log_z has another"),
}  # fmt: skip


OF_ROWS = ("record",)
"""Edits of rows that a checkpoint has; a DataTree has none of them beside its draws."""


def kept_of(finished, tmp_path):
    return shutil.copytree(finished[1], tmp_path / "run.zarr")


@pytest.mark.slow("interrupts and restarts", every=7)
@pytest.mark.parametrize("name", CHAINS)
def test_chains_that_do_not_fit_their_plan_are_refused(finished, model, tmp_path, name):
    change, words = CHAINS[name]
    path = edited(kept_of(finished, tmp_path), "chains", change)
    with pytest.raises(CheckpointError, match=words):
        pmt.resume(path, model=model, quiet=True)
    if name not in OF_ROWS:
        tree = edited_tree(finished[0], "chains", change)
        with pytest.raises(CheckpointError, match=words):
            pmt.extend(tree, draws=5, model=model, quiet=True)


@pytest.mark.parametrize("name", PLANS)
def test_plans_that_do_not_fit_the_model_are_refused(finished, model, tmp_path, name):
    change, words = PLANS[name]
    path = edited(kept_of(finished, tmp_path), "plan", change)
    with pytest.raises(CheckpointError, match=words):
        pmt.resume(path, model=model, quiet=True)


def test_unchecked_chains_would_reach_the_loop(finished, model, monkeypatch):
    """Planted: without the check the loop reads ten million rungs behind its ladder, and dies."""
    reached = []

    def no_loop(job, outcome, *args):
        reached.extend(chain.state.rung for chain in outcome.runs)
        raise KeyboardInterrupt

    monkeypatch.setattr(kept, "check_pieces", lambda plan, pieces: None)
    monkeypatch.setattr(restart, "run_to", no_loop)
    tree = edited_tree(finished[0], "chains", counter(loop.RUNG, 10**7))
    with pytest.raises(KeyboardInterrupt):
        pmt.extend(tree, draws=5, model=model, quiet=True)
    assert reached[0] == 10**7


def test_another_length_of_the_round_is_refused(finished, model, tmp_path):
    def shorter(plain, arrays):
        plain["dict"]["standing"]["dict"]["total"] = 3

    path = edited(kept_of(finished, tmp_path), "chains", shorter)
    with pytest.raises(CheckpointError, match="total must be a whole number of at least 60"):
        pmt.resume(path, model=model, quiet=True)


MIXTURE = Mixture(
    np.full(2, 0.5),
    np.zeros((2, 2)),
    FullScales(np.tile(np.eye(2), (2, 1, 1))),
    np.full(2, 5.0),
    0.1,
)
WARP = FunnelWarp(
    np.array([1]), np.array([0]), *np.zeros((7, 1)), np.array([[0]]), *np.zeros((2, 1, 2))
)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"warp": WARP}, None),
        ({"n_white": 1}, "n_white does not fit"),
        ({"stretched": 3}, "stretched does not fit"),
        ({"stretched": -1}, "stretched does not fit"),
        ({"dofs": np.ones(3)}, "dofs has another form"),
        ({"warp": replace(WARP, index=np.array([2]))}, "index is 2, and has to be from 0 to 1"),
        ({"warp": replace(WARP, scale=np.array([-9]))}, "scale is -9"),
        ({"warp": replace(WARP, regressors=np.array([[10**7]]))}, "regressors is 10000000"),
        ({"warp": replace(WARP, index=np.array([1.0]))}, "index has another form"),
        ({"warp": replace(WARP, prior_mean=np.zeros((1, 1)))}, "likelihood_mean has another"),
    ],
)
def test_fitted_references_are_checked_too(change, words):
    with nullcontext() if words is None else pytest.raises(ValueError, match=words):
        check_plan(replace(MIXTURE, **change), on_all(HMC(), 2), 2)


def signed(folder, change):
    """Change both heads, and redo their checksums."""
    for head in (folder / name for name in HEADS):
        body = json.loads(json.loads(head.read_text())["head"])
        change(body)
        text = json.dumps(body)
        head.write_text(json.dumps({"sum": sha256(text.encode()).hexdigest(), "head": text}))


@pytest.mark.parametrize("name", ["../../secret", "/etc/hostname", "000001-plan.npz/../x", "lock"])
def test_files_outside_the_folder_are_not_opened(finished, model, tmp_path, monkeypatch, name):
    path, opened = kept_of(finished, tmp_path), []
    secret = tmp_path.parent / "secret"
    secret.write_text("secret")

    def change(body):
        body["parts"]["plan"] = [
            {"file": name, "checksum": sha256(secret.read_bytes()).hexdigest()}
        ]

    signed(path, change)
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: opened.append(self) or read(self))
    with pytest.raises(CheckpointError, match=f"names '{name}', which is no part of a checkpoint"):
        pmt.resume(path, model=model, quiet=True)
    assert not opened


@pytest.mark.parametrize(("name", "key"), [("MT19937", "state"), ("Philox", None)])
@pytest.mark.parametrize("place", [-1, 10**7])
def test_a_generator_does_not_read_behind_its_buffer(name, key, place):
    state = state_of(np.random.Generator(getattr(np.random, name)(1)))
    inside = state["state"][key] if key else state["state"]
    inside["pos" if key else "buffer_pos"] = place
    with pytest.raises(ValueError, match=r"generator is at|must be between"):  # new NumPy
        generator_from(state)
