"""Two processes execute the same mechanism as one."""

from importlib.util import find_spec

import numpy as np
import pytest

pytest.importorskip("opacus", reason="needs torch and opacus")

from ddp_training import train
from processes import end, start_two
from whiteness import is_white, strategies

from hockeystick.strategies import STRATEGIES
from hockeystick.training import RunRecord

pytestmark = [
    pytest.mark.slow,  # all of them, as they wait for the same processes
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def left(request, tmp_path_factory):
    """What two processes left, which start once for the modes of all tests that were chosen: MODE/RANK."""
    folder = tmp_path_factory.mktemp("ranks")
    here = [item for item in request.session.items if item.path == request.path]
    modes = dict.fromkeys(item.callspec.params["mode"] for item in here)
    if "exact_resumed" in modes:
        (folder / "exact_resumed").mkdir()
        train(lambda model: model, "exact", end=folder / "exact_resumed" / "state.pt")
    end(*start_two("ddp_training.main", folder, *modes, folder=folder))
    return folder


@pytest.mark.parametrize("mode", ["hooks", "ghost", "layers", "independent"])
def test_two_ranks_are_one_run(mode, left):
    """No rank is ahead of the other where its part of a batch is empty, and the public divisor is the same."""
    ranks = left / mode / "0", left / mode / "1"
    first, second = (np.load(rank / "trained.npz") for rank in ranks)
    weights, _, sizes, engine = train(lambda model: model, mode)
    assert np.array_equal(first["weights"], second["weights"])
    assert np.array_equal(first["sizes"] + second["sizes"], sizes)
    assert np.any((first["sizes"] == 0) != (second["sizes"] == 0))
    assert np.allclose(first["weights"], weights, rtol=0, atol=1e-5)
    records = [RunRecord.load(rank / "run.json") for rank in ranks]
    assert records[0].commitment == records[1].commitment == engine.record().commitment
    assert "one_noise_row_a_step" in records[0].checked
    assert "one_noise_row_a_step" in records[1].asserted


@pytest.mark.parametrize("mode", ["exact", "exact_layers"])
def test_whole_numbers_are_the_same_for_any_number_of_processes(mode, left):
    """Not a bit of the weights differs, where sums in floating point agree to rounding."""
    ranks = left / mode / "0", left / mode / "1"
    first, second = (np.load(rank / "trained.npz") for rank in ranks)
    weights, _, _, engine = train(lambda model: model, mode)
    assert np.array_equal(first["weights"], weights)
    assert np.array_equal(second["weights"], weights)
    records = [RunRecord.load(rank / "run.json") for rank in ranks]
    assert records[0].commitment == records[1].commitment == engine.record().commitment
    assert all({"exact_sums", "one_shape"} <= set(record.checked) for record in records)
    assert len(first["sizes"]) == len(second["sizes"])


@pytest.mark.parametrize("mode", ["exact_resumed", "exact_stopped"])
def test_whole_numbers_are_the_same_on_another_number_of_processes_after_a_stop(mode, left):
    """Two processes go on from the state of one, and one from that of two, with the bits of a run that never ended."""
    whole = train(lambda model: model, "exact")[0]
    if mode == "exact_resumed":
        ranks = left / mode / "0", left / mode / "1"
        records = [RunRecord.load(rank / "run.json") for rank in ranks]
        after = [np.load(rank / "trained.npz")["weights"] for rank in ranks]
    else:
        weights, _, _, engine = train(lambda model: model, "exact", start=left / mode / "state.pt")
        records, after = [engine.record()], [weights]
    assert all(np.array_equal(weights, whole) for weights in after)
    assert [(record.steps, record.resumed, record.violations) for record in records] == [(30, 1, ())] * len(records)


@pytest.mark.parametrize("mode", ["noise"])
def test_two_ranks_have_one_stream_of_noise_of_every_kind(mode, left, tmp_path):
    """Without gradients, what reaches ``p.grad`` on both ranks is the noise of the mechanism, once."""
    first, second = left / mode / "0", left / mode / "1"
    for kind, strategy in strategies(tmp_path).items():
        rows = np.load(first / f"{kind}.npy")
        assert np.array_equal(rows, np.load(second / f"{kind}.npy"))
        assert is_white(strategy.matrix(len(rows)), rows, 2.0), kind
    assert {path.stem for path in first.glob("*.npy")} >= set(STRATEGIES)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("alike", "must have different random numbers in each process"),
        ("unwrapped", "must be wrapped for all 2 processes"),
    ],
)
def test_what_would_not_be_one_run_is_refused(mode, message, left):
    """Which examples share a dropout mask would depend on the others; or each process would have a run of its own."""
    for rank in ("0", "1"):
        assert message in (left / mode / rank / "refused.txt").read_text()


@pytest.mark.parametrize("mode", ["apart"])
def test_dropout_with_a_seed_for_each_rank_is_trained(mode, left):
    assert all(RunRecord.load(left / mode / rank / "run.json").violations == () for rank in ("0", "1"))


@pytest.mark.skipif(find_spec("lightning") is None, reason="needs lightning")
@pytest.mark.parametrize("mode", ["lightning"])
def test_lightning_in_two_processes_is_the_same_run(mode, left):
    """Its loop takes each process for the only one, and the model's wrapper knows better."""
    weights, _, _, engine = train(lambda model: model, mode)
    for rank in ("0", "1"):
        assert np.allclose(np.load(left / mode / rank / "trained.npz")["weights"], weights, rtol=0, atol=1e-5)
        record = RunRecord.load(left / mode / rank / "run.json")
        assert (record.steps, record.commitment) == (30, engine.record().commitment)
