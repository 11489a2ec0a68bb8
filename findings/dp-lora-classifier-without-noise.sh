#!/bin/bash
# Expected: an engine that makes the training of a PEFT model private clips and adds noise to all that the optimizer trains.
# Happens: its hooks sit on the two matrices of an adapter. What PEFT trains beside them, as the classifier of a model for
# sequences (task_type "SEQ_CLS" puts it into modules_to_save), keeps the plain gradient of the batch, and the optimizer takes a step
# with it: not clipped, no noise. The accountant counts the step, and no warning is given.
# Truth inside: the gradients of torch, and the saved classifiers of 40 pairs of runs that differ in one example. One full
# batch at noise multiplier 100 is a Gaussian mechanism, of which no attack tells right more often than .502.
# Who is hurt: whoever fine-tunes a classifier with an adapter, as PEFT's task_type asks for it: with epsilon .03
# reported, the head tells whether an example was there, every time.
# Version: dp-lora 0.1.0, peft 0.21.2, transformers 5.24.0. Source: dp_lora/grad_sample/grad_sample_module.py, _attach_hooks, and
# dp_lora/optimizers/dp_optimizer.py, add_noise_and_finalize.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check dp-lora==0.1.0 peft==0.21.2 transformers==5.24.0 \
    opacus==1.6.0 torch==2.13.0 dp-accounting==0.6.0
"$room/venv/bin/python" - <<'PYTHON'
import warnings
from importlib.metadata import version

import torch
from dp_lora import DPLoRAEngine
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification

warnings.simplefilter("ignore")
torch.manual_seed(0)
SIZE = 20
WORDS, LABELS = torch.randint(5, 50, (SIZE, 8)), torch.randint(0, 2, (SIZE,))


class Texts(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        return {"input_ids": WORDS[i], "labels": LABELS[i]}


def train(size, seed):
    """One full batch: the changes of trained tensors, the gradients of torch, and the epsilon that is reported."""
    torch.manual_seed(0)
    base = BertForSequenceClassification(BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=2,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    ))
    model = get_peft_model(base, LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"]))
    engine = DPLoRAEngine()
    model, optimizer, loader = engine.make_private(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), method="vanilla", noise_multiplier=100.0,
        data_loader=DataLoader(Texts(size), batch_size=size), max_grad_norm=1.0, poisson_sampling=False,
    )
    torch.manual_seed(seed)
    for batch in loader:
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        before = {name: p.detach().clone() for name, p in trained.items()}
        optimizer.zero_grad()
        model(**batch).loss.backward()
        plain = {name: p.grad.clone() for name, p in trained.items()}
        optimizer.step(engine.grad_sample_module.get_per_sample_grads())
        engine.grad_sample_module.clear_per_sample_grads()
    return {name: before[name] - p.detach() for name, p in trained.items()}, plain, engine.get_epsilon(1e-5)


change, plain, epsilon = train(SIZE, seed=1)
print(f"dp-lora {version('dp-lora')}, peft {version('peft')}: noise multiplier 100, epsilon reported as {epsilon:.3f}")
for name in change:
    distance = (change[name] - plain[name]).norm().item()
    print(f"{name.removeprefix('base_model.model.')}: changed by {change[name].norm():.4f}, {distance:.1e} from the plain gradient")
    assert (distance < 1e-6) == ("modules_to_save" in name)
head = next(name for name in change if name.endswith("modules_to_save.default.weight"))
known = [train(size, seed=1)[0][head] for size in (SIZE - 1, SIZE)]
right = 0
for seed in range(2, 42):
    for member in (0, 1):
        seen = train(SIZE - 1 + member, seed)[0][head]
        right += ((seen - known[1]).norm() < (seen - known[0]).norm()).item() == bool(member)
print(f"{right} of 80 runs told right from the classifier that was saved")
assert right == 80
PYTHON
