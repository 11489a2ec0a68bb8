"""Runs with exact sums that are saved and resumed, their records, and a stated change of the other examples."""

import json
import warnings

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.training import Run, RunRecord

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch
from whole_numbers import MECHANISM, classifier, engine_of, expected, gradients_of, made, train, weights_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def test_a_run_that_was_resumed_has_the_same_bits(tmp_path):
    engine = engine_of(physical_batch_size=4)
    model, *rest = classifier(engine)
    train(engine, model, *rest)
    for until in (1, 4, 11):
        first, path = engine_of(physical_batch_size=4), tmp_path / f"{until}.pt"
        train(first, *classifier(first), path=path, until=until)
        second = engine_of(seed=9, physical_batch_size=4)
        again, optimizer, loader = classifier(second)
        second.load_checkpoint(path=path, module=again, optimizer=optimizer)
        train(second, again, optimizer, loader)
        assert np.array_equal(weights_of(again), weights_of(model))
        assert second.record().resumed == 1


def test_a_run_may_not_be_resumed_with_other_physical_batches(tmp_path):
    first, path = engine_of(physical_batch_size=4), tmp_path / "state.pt"
    train(first, *classifier(first), path=path, until=3)
    second = engine_of(physical_batch_size=5)
    model, optimizer, _ = classifier(second)
    with pytest.raises(InvalidInputError, match="'physical_batch_size' argument must be that of the saved run, 4"):
        second.load_checkpoint(path=path, module=model, optimizer=optimizer)


def test_the_record_says_what_was_done(tmp_path):
    engine = engine_of(physical_batch_size=4)
    train(engine, *classifier(engine))
    engine.record(engine.certificate(1e-5, method="gaussian")).save(tmp_path / "run.json")
    record = RunRecord.load(tmp_path / "run.json")
    assert record.mechanism.exact
    assert record.noise_dtype == "int32"
    assert {"exact_sums", "one_shape", "norms"} <= set(record.checked)
    assert "batch_invariance" in record.asserted
    assert "invariance_audited" not in record.checked
    assert "rounded to whole numbers of a proved norm" in str(record)
    words, sentences = record.about("invariance")
    assert words == "partly checked by the run"
    assert sentences.index("All physical batches had one shape") < sentences.index("On trust: The bits of an example's")
    assert "summed without error" in record.about("noise")[1]


def test_an_audit_of_the_model_is_in_the_record():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    example = torch.randn(8), torch.tensor(2)
    found = hs.audit.invariance(model, torch.nn.CrossEntropyLoss(), example, batch=32)
    engine = engine_of(invariance=found)
    classifier(engine)
    assert "invariance_audited" in engine.record().checked
    assert "batch_invariance" in engine.record().asserted
    for size, mode in ((5, "hooks"), (32, "functorch")):
        with pytest.raises(
            InvalidInputError, match=f"must be an audit with batch={size} and grad_sample_mode='{mode}'"
        ):
            classifier(engine_of(physical_batch_size=size, invariance=found), grad_sample_mode=mode)
    for wrong in (True, -0.1, 1.5, float("nan"), "0.1"):
        with pytest.raises(InvalidInputError, match=r"must be what hockeystick.audit.invariance returned, or a number"):
            classifier(engine_of(invariance=wrong))
    changed = found.model_copy(update={"layers": (found.layers[0].model_copy(update={"changed": 1, "change": 1e-3}),)})
    with pytest.raises(UnsupportedError, match=r"depend on the other examples of a batch, by 0\.001 of the norm"):
        classifier(engine_of(invariance=changed))


@pytest.mark.filterwarnings("default::UserWarning")
def test_rows_that_are_computed_by_where_they_stand_are_seen(monkeypatch):
    """As on some processors, where nothing tells torch's library to compute them alike."""
    linear = torch.nn.functional.linear

    def by_place(rows, weight):
        made = linear(rows, weight)
        made[16:] *= 1.0 + 2.0**-22
        return made

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        classifier(engine_of())
    assert not [warning for warning in said if "MKL_CBWR" in str(warning.message)]
    monkeypatch.setattr(torch.nn.functional, "linear", by_place)
    with pytest.warns(UserWarning, match="start Python with MKL_CBWR=AUTO in its environment"):
        classifier(engine_of())


@pytest.mark.parametrize("rho", [1e-3, 0.25, 1])
def test_noise_covers_a_stated_change_of_the_others(rho, tmp_path):
    """As many whole numbers of noise, for gradients that are clipped to a norm of fewer of them."""
    engine = engine_of(physical_batch_size=5, invariance=rho)
    assert np.array_equal(gradients_of(engine, *made(engine)), expected(rho=rho))
    engine.record(engine.certificate(1e-5, method="gaussian")).save(tmp_path / "run.json")
    record = RunRecord.load(tmp_path / "run.json")
    assert record.rho == rho
    assert "change_of_others" in record.asserted
    assert "batch_invariance" not in record.asserted
    assert f"rho         {record.rho!r} of the clipping norm" in str(record)
    assert "the whole numbers of all others together changed by at most" in record.about("invariance")[1]
    assert record.certificate.mechanism.sigma == MECHANISM.sigma


def test_a_run_is_resumed_with_the_same_stated_change(tmp_path):
    first, path = engine_of(physical_batch_size=4, invariance=0.5), tmp_path / "state.pt"
    train(first, *classifier(first), path=path, until=3)
    second = engine_of(physical_batch_size=4)
    model, optimizer, _ = classifier(second)
    with pytest.raises(InvalidInputError, match="'invariance' argument must be that of the saved run, whose clipping"):
        second.load_checkpoint(path=path, module=model, optimizer=optimizer)


def test_a_record_has_a_rho_where_it_is_about_exact_sums_alone():
    plain = Run(MECHANISM.model_copy(update={"exact": False}), num_examples=40, shape=7)
    with pytest.raises(InvalidInputError, match="'rho' field must be given for exact sums"):
        plain.record(rho=0.1)
    record = Run(MECHANISM, num_examples=40, shape=7).record()
    assert "rho" not in record.model_dump(mode="json")  # records of before there was one keep their digests
    with pytest.raises(InvalidInputError, match="'rho' field must be given for exact sums"):
        RunRecord.parse_json(json.dumps(record.model_dump(mode="json") | {"rho": 0.1}), "record")
