"""Two processes with the Trainer of transformers execute the same mechanism as one."""

import re
from multiprocessing import Pipe

import numpy as np
import pytest

from hockeystick.errors import InvalidInputError
from hockeystick.training import RunRecord

pytest.importorskip("opacus", reason="needs torch and opacus")
pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate")
pytest.importorskip("peft", reason="needs peft")

import shards_on_a_cpu
import torch
from huggingface_ranks import EXACT_SHARDS, SHARDS, model_for, result, train
from huggingface_training import MECHANISM
from peft import PeftModel
from processes import end, exit_codes, start_two
from safetensors.torch import load_file
from torch import distributed
from transformers import LlamaForCausalLM

SHARED_OUT, EXACT = (SHARDS, EXACT_SHARDS) if shards_on_a_cpu.RUN else ((), ())
pytestmark = [
    pytest.mark.slow,  # all of them, as they wait for processes
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def left(request, tmp_path_factory):
    """What two processes left, which start once for the modes of all tests that were chosen: MODE/RANK."""
    folder = tmp_path_factory.mktemp("ranks")
    here = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    asked = dict.fromkeys(item.callspec.params["mode"] for item in here if "mode" in item.callspec.params)
    modes = [mode for mode in asked if shards_on_a_cpu.RUN or mode not in SHARDS]
    end(*start_two("huggingface_ranks.main", folder, *modes, folder=folder))
    return folder


@pytest.mark.parametrize("mode", ["hooks", "ghost", "bf16", *SHARED_OUT])
def test_two_processes_are_one_run(mode, left, tmp_path):
    """The same batches, noise, divisor and losses; each takes its step where its part of a batch is empty.

    Sums of at most eight gradients, clipped to 1 and with noise up to 8, are rounded in another order, by 8 * 2^-23 at
    most for each, and steps of 0.5 carry that on. A weight that rounds to another bfloat16 moves a gradient by 2^-8.
    """
    ranks = left / mode / "0", left / mode / "1"
    first, second = (np.load(rank / "trained.npz") for rank in ranks)
    made = train(tmp_path, mode)
    alone = result(made)
    for name in ("weights", "rows", "losses", "evaluated"):
        assert np.array_equal(first[name], second[name]), name
    assert np.array_equal(first["sizes"] + second["sizes"], alone["sizes"])
    assert np.any((first["sizes"] == 0) != (second["sizes"] == 0))
    tolerance = 2**-8 if mode == "bf16" else 1e-5
    for name in ("rows", "weights", "losses", "evaluated"):
        assert np.allclose(first[name], alone[name], rtol=0, atol=tolerance), name
    records = [RunRecord.load(rank / "run.json") for rank in ranks]
    assert records[0].commitment == records[1].commitment == made.record().commitment
    assert records[0].violations == ()
    assert "one_noise_row_a_step" in records[0].checked
    assert "one_noise_row_a_step" in (records[1].checked if mode in SHARDS else records[1].asserted)


@shards_on_a_cpu.needed
@pytest.mark.parametrize("mode", SHARDS)
def test_what_processes_share_out_is_saved_whole(mode, left):
    """By the first of them, with the bits that were trained."""
    folders = left / mode / "0", left / mode / "1"
    if mode == "adapters":
        loaded = PeftModel.from_pretrained(model_for("shards"), folders[0])
    else:
        loaded = LlamaForCausalLM.from_pretrained(folders[0])
    weights = torch.cat([p.detach().reshape(-1) for p in loaded.parameters()]).numpy()
    assert np.array_equal(weights, np.load(folders[0] / "trained.npz")["weights"])
    assert not list(folders[1].glob("*.safetensors"))


@pytest.fixture
def group():
    """Of this process alone."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("mode", ["exact", *EXACT])
def test_sums_of_whole_numbers_are_those_of_one_process(mode, left, group, tmp_path):
    """Bit for bit, in physical batches of one shape; with shards, those of one process that has all of them."""
    ranks = left / mode / "0", left / mode / "1"
    alone = result(train(tmp_path, mode))
    for rank in ranks:
        trained = np.load(rank / "trained.npz")
        for name in ("rows", "weights"):
            assert np.array_equal(trained[name], alone[name]), name
        assert np.allclose(trained["losses"], alone["losses"], rtol=0, atol=1e-5)
        record = RunRecord.load(rank / "run.json")
        assert {"exact_sums", "one_shape"} <= set(record.checked)
        assert record.violations == ()


@pytest.mark.parametrize("mode", ["dropout"])
def test_no_two_processes_have_the_same_dropout_masks(mode, left):
    """Or two examples would share a mask, and which two do would depend on the others."""
    first, second = (np.load(left / mode / rank / "trained.npz") for rank in ("0", "1"))
    assert not np.array_equal(first["random"], second["random"])
    assert np.array_equal(first["weights"], second["weights"])


@pytest.mark.parametrize("mode", ["shuffled"])
def test_data_that_differ_between_processes_are_refused(mode, left):
    """A place in the data has to be one example, or an example takes part twice."""
    for rank in ("0", "1"):
        assert "the same examples in the same order in all processes" in (left / mode / rank / "error").read_text()


@pytest.mark.parametrize(
    "module", ["huggingface_training", pytest.param("huggingface_shards", marks=shards_on_a_cpu.needed)]
)
def test_two_processes_that_were_killed_end_as_if_they_had_not_been(module, tmp_path, trainer):
    """Bit-identical weights on a CPU, with dropout and Adam; one process does not continue what two have begun."""
    alone, often = tmp_path / "alone", tmp_path / "often"
    alone.mkdir()
    often.mkdir()
    end(*start_two(f"{module}.train", alone, folder=tmp_path))
    saved, says = Pipe(duplex=False)
    killed = start_two("killing.train_until_killed", module, often, says, folder=tmp_path)
    assert saved.poll(200)
    for process in killed:
        process.kill()
    assert [code < 0 for code in exit_codes(*killed)] == [True, True]
    made = trainer(MECHANISM, folder="often")
    with pytest.raises(
        InvalidInputError, match=r"of a training in 1 process.*Got one of 2, whose repeated steps would add the same"
    ):
        made.train(resume_from_checkpoint=True)
    end(*start_two(f"{module}.train", often, folder=tmp_path))
    assert (alone / "model.safetensors").read_bytes() == (often / "model.safetensors").read_bytes()
    assert not list(often.glob(".unfinished*"))
    records = [RunRecord.load(folder / "run.json") for folder in (alone, often)]
    assert records[0].commitment == records[1].commitment
    assert records[0].certificate == records[1].certificate
    assert (records[0].resumed, records[1].resumed) == (0, 1)


TRAINED = ["sft", "dpo", *(["shards"] if shards_on_a_cpu.RUN else [])]


@pytest.fixture(scope="module")
def left_by_trl(tmp_path_factory):
    """What two processes left of each kind of training with TRL."""
    pytest.importorskip("trl", reason="needs trl")
    folder = tmp_path_factory.mktemp("trl")
    end(*start_two("trl_ranks.main", folder, *TRAINED, "another", "sent", folder=folder))
    return folder


@pytest.mark.parametrize("kind", TRAINED)
def test_the_trainers_of_trl_train_in_two_processes_as_in_one(kind, left_by_trl, tmp_path):
    """The first process saves the adapters, which are those of one process. Pairs take three parts here and two there.

    Up to roundings, as in the test of two processes above, with SGD and the same rate.
    """
    import trl_ranks

    alone = trl_ranks.train(tmp_path, kind)
    first, other = (load_file(folder / "adapter_model.safetensors") for folder in (left_by_trl / kind / "0", tmp_path))
    assert first.keys() == other.keys()
    for name, tensor in other.items():
        assert torch.allclose(first[name], tensor, rtol=0, atol=1e-5), name
    records = [RunRecord.load(left_by_trl / kind / rank / "run.json") for rank in ("0", "1")]
    for record in records:
        assert (record.commitment, record.violations) == (alone.record().commitment, ())
    assert {"independence_tried", "one_noise_row_a_step"} <= set(records[0].checked)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("another", r"same loss in all processes; .* Got 0\.693147 in process 0 and 0\.6"),
        ("sent", r"loss of Sends must be computed in one process, as it calls torch\.distributed \(c10d::allreduce_"),
    ],
    ids=["another", "sent"],
)
def test_losses_that_depend_on_the_process_are_refused_in_all_of_them(kind, message, left_by_trl):
    """Where a pair is trained would change with the pairs beside it, and a count of all pairs with their number."""
    for rank in ("0", "1"):
        assert re.search(message, (left_by_trl / kind / rank / "error").read_text())
