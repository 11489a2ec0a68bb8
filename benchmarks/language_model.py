"""``python -m benchmarks.language_model``: what private fine-tuning of a small language model gains, with which noise.

    python -m benchmarks.language_model        train what has no row yet; stop it and start it again at any time
    python -m benchmarks.language_model_page   write docs/reference/language-models.md from the rows that there are

A transformer learns from public text, the reference of the Python language and the docstrings of its standard library.
Adapters of rank 4 are then trained on docstrings of numpy, scipy and torch, which stand for private documents: a
document is an example, its first tokens alone. Three mechanisms are calibrated to each epsilon: Poisson batches and
random allocation with independent noise, and the correlated noise with the least predicted error
(``hockeystick.recommend``). Beside them are the public model as it is, and the same training without privacy.

Each cell's learning rate has the least loss on validation documents, in one run with a seed of its own. Ten other seeds
are for the table, whose losses are of test documents; a seed gives all cells the same first adapters. The folder
``benchmarks/language-model`` keeps one row for each run that has ended (``runs.csv``), the recommended plans and the
certificates. Seeds that are known are for experiments: with them, anybody can subtract the noise.
"""

import argparse
import ast
import math
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np

import hockeystick as hs
from benchmarks.answer_files import append, read
from benchmarks.runner import ROOT

FOLDER = ROOT / "benchmarks" / "language-model"
DELTA, CLIP_NORM, MOMENTUM, SCHEDULE = 1e-5, 0.5, 0.9, "linear"
TUNING_SEED = 1000
"""Of the runs by which learning rates are chosen; no seed of the table."""
NOT_READ = {"test", "tests", "testing", "site-packages", "idlelib", "lib2to3"}
"""Folders with tests, with what others installed, and with programs."""
PRIVATE = ("poisson", "random_allocation", "recommended")
WITHOUT = "without privacy"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Sizes of the data, the model and the training.

    Attributes:
        vocabulary, tokens: of the tokenizer, which has seen public text alone, and of a document, the rest of which is
            left out.
        documents, held_out: that are trained on; of the validation, and of the test.
        public_steps: of 64 pieces of public text.
        library: the folder whose docstrings are public, that of the standard library.
        packages: those whose docstrings are the private documents.
    """

    vocabulary: int = 512
    tokens: int = 16
    width: int = 48
    documents: int = 4000
    held_out: int = 1000
    batch_size: int = 200
    epochs: int = 5
    public_steps: int = 1500
    library: Path = Path(sysconfig.get_path("stdlib"))
    packages: tuple[str, ...] = ("numpy", "scipy", "torch")
    targets: tuple[float, ...] = (2.0, 8.0)
    rates: tuple[float, ...] = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
    seeds: int = 10

    @property
    def steps(self) -> int:
        """Steps of the training."""
        return self.epochs * self.documents // self.batch_size

    def plan(self, sampler: str, target: float) -> hs.Plan:
        """The plan with independent noise."""
        data = {"num_examples": self.documents, "batch_size": self.batch_size, "epochs": self.epochs}
        goal = {"epsilon": target, "delta": DELTA}
        return hs.Plan.parse({"data": data, "sampler": {"kind": sampler}, "target": goal})


def docstrings(folders: Sequence[Path]) -> list[str]:
    """All docstrings below these folders, each once and in a fixed order, without tests; nothing is imported."""
    texts = set()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if NOT_READ & set(path.relative_to(folder).parts):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(path.read_bytes())
            nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            documented = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, nodes))
            texts |= {" ".join(text.split()) for text in documented if text}
    return sorted(text for text in texts if len(text) > 20)


@dataclass(frozen=True)
class Data:
    """Tokens: of public text, one piece a row, and of private documents, padded by zeros, one a row."""

    public: Any
    training: Any
    validation: Any
    test: Any


def data_of(setting: Setting) -> Data:
    """The texts as tokens. Documents that begin alike are one, and those that begin as public text are left out."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    public = docstrings([setting.library])
    known = [" ".join(topics[name].split()) for name in sorted(topics)] + public
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.decoder = decoders.ByteLevel()
    options = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "special_tokens": ["<pad>"]}
    tokenizer.train_from_iterator(
        known, trainers.BpeTrainer(vocab_size=setting.vocabulary, show_progress=False, **options)
    )
    length = setting.tokens
    pieces = [
        text.ids[first : first + length]
        for text in tokenizer.encode_batch(known)
        for first in range(0, len(text.ids) - length + 1, length)
    ]
    folders = [Path(str(find_spec(name).origin)).parent for name in setting.packages]  # type: ignore[union-attr]
    begins = {tuple(text.ids[:length]): None for text in tokenizer.encode_batch(docstrings(folders))}
    seen = {tuple(text.ids[:length]) for text in tokenizer.encode_batch(public)} | {*map(tuple, pieces)}
    documents = [begin for begin in begins if begin not in seen]
    wanted = setting.documents + 2 * setting.held_out
    if len(documents) < wanted:
        names = ", ".join(setting.packages)
        sys.exit(f"The packages {names} must have at least {wanted} docstrings that differ. Got {len(documents)}.")
    order = np.random.default_rng(0).permutation(len(documents))[:wanted]
    rows = torch.zeros(wanted, length, dtype=torch.long)
    for row, at in zip(rows, order, strict=True):
        row[: len(documents[at])] = torch.tensor(documents[at])
    training, validation, test = rows.split([setting.documents, setting.held_out, setting.held_out])
    return Data(torch.tensor(pieces), training, validation, test)


def loss_on(model: Any, documents: Any) -> float:
    """The mean loss in nats over all tokens but the first of each document."""
    import torch

    model.eval()
    with torch.no_grad():
        logits = model(input_ids=documents).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), documents[:, 1:].flatten(), ignore_index=0)
    return float(losses)


def public_model(setting: Setting, public: Any) -> Any:
    """A transformer of one layer after its training on public text, the same every time on one machine."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=setting.vocabulary,
        hidden_size=setting.width,
        intermediate_size=2 * setting.width,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=setting.tokens,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, setting.public_steps)
    for _ in range(setting.public_steps):
        batch = public[torch.randint(len(public), (64,))]
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return model


def with_adapters(model: Any, seed: int) -> Any:
    """A copy of the model, frozen, with adapters that this seed draws."""
    from copy import deepcopy

    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    adapters = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(deepcopy(model), adapters)


def trained(
    setting: Setting, model: Any, documents: Any, rate: float, seed: int, mechanism: hs.Mechanism | None
) -> Any:
    """The Trainer after its training; that of transformers without a mechanism."""
    import torch
    import transformers

    labels = documents.masked_fill(documents == 0, -100)
    examples = [{"input_ids": ids, "labels": wanted} for ids, wanted in zip(documents, labels, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {
            "model": with_adapters(model, seed),
            "train_dataset": examples,
            "optimizer_cls_and_kwargs": (torch.optim.SGD, {"lr": rate, "momentum": MOMENTUM}),
            "args": transformers.TrainingArguments(
                folder,
                max_steps=setting.steps,
                per_device_train_batch_size=setting.batch_size if mechanism is None else 2 * setting.batch_size,
                learning_rate=rate,
                lr_scheduler_type=SCHEDULE,
                max_grad_norm=0.0 if mechanism is None else CLIP_NORM,
                seed=seed,
                use_cpu=True,
                report_to="none",
                disable_tqdm=True,
                save_strategy="no",
                logging_strategy="no",
            ),
        }
        if mechanism is None:
            trainer: Any = transformers.Trainer(**options)
        else:
            trainer = hs.huggingface.Trainer(plan=mechanism, rng=np.random.default_rng(seed), **options)
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    return trainer


SETTING = Setting()


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that has ended: a row of the file.

    Attributes:
        target: the epsilon that was calibrated for; nan without privacy, as the noise multiplier.
        validation, test: losses in nats for each token, and ``public`` the test loss of the public model.
        seconds: of the processor, for training and losses.
    """

    mechanism: str
    target: float
    rate: float
    seed: int
    validation: float
    test: float
    public: float
    noise_multiplier: float
    seconds: float

    @property
    def cell(self) -> tuple[str, str, float, int]:
        """What tells it from other runs."""
        return self.mechanism, f"{self.target:g}", self.rate, self.seed


def runs_in(file: Path) -> list[Run]:
    """The runs that have ended."""
    return list(read(file, Run).values())


@dataclass(frozen=True)
class Cell:
    """A line of the table: a mechanism and its target, which is nan without privacy."""

    mechanism: str
    target: float

    def of(self, runs: list[Run], seeds: Sequence[int]) -> list[Run]:
        """The cell's runs with these seeds."""
        mine = (self.mechanism, f"{self.target:g}")
        return [run for run in runs if (run.mechanism, f"{run.target:g}") == mine and run.seed in seeds]


def cells_of(setting: Setting) -> list[Cell]:
    """All of them, in the order of the table."""
    private = [Cell(mechanism, target) for target in setting.targets for mechanism in PRIVATE]
    return [Cell(WITHOUT, math.nan), *private]


def mechanism_of(setting: Setting, cell: Cell) -> hs.Mechanism:
    """Without its noise multiplier."""
    if cell.mechanism != "recommended":
        return setting.plan(cell.mechanism, cell.target).mechanism()
    workload = hs.Workload(momentum=MOMENTUM, schedule=SCHEDULE)
    choices = hs.recommend(setting.plan("poisson", cell.target), workload=workload, budget=0.0).choices
    correlated = [choice for choice in choices if choice.candidate.plan.strategy.kind != "identity"]
    return min(correlated, key=lambda choice: choice.error).candidate.plan.mechanism()


def file_of(cell: Cell, folder: Path) -> Path:
    """The file of the cell's certificate."""
    return folder / "certificates" / f"{cell.mechanism}-{cell.target:g}.json"


def certificate_of(setting: Setting, cell: Cell, folder: Path) -> hs.Certificate:
    """That of the cell's mechanism at its target, from its file, or made and kept there."""
    path = file_of(cell, folder)
    mechanism = mechanism_of(setting, cell)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"calibrating {path.name}", file=sys.stderr, flush=True)
        hs.calibrate_and_certify(mechanism, epsilon=cell.target, delta=DELTA).save(path)
    kept = hs.Certificate.load(path)
    if not kept.mechanism.is_of(mechanism.with_noise(kept.mechanism.sigma)):
        sys.exit(
            f"{path} is not about the mechanism {cell.mechanism!r} as it is now; delete it, and the rows of its runs."
        )
    return kept


def rate_of(cell: Cell, runs: list[Run]) -> float:
    """The learning rate with the least validation loss, of those that did not diverge."""
    tried = (run for run in cell.of(runs, [TUNING_SEED]) if not math.isnan(run.validation))
    return min(tried, key=lambda run: run.validation).rate


def missing(setting: Setting, answers: Path) -> Iterator[tuple[Cell, float, int]]:
    """Runs without a row: those by which rates are chosen, then seed by seed, so that what is there can be compared."""
    cells = cells_of(setting)
    for cell in cells:
        tried = {run.rate for run in cell.of(runs_in(answers), [TUNING_SEED])}
        yield from ((cell, rate, TUNING_SEED) for rate in setting.rates if rate not in tried)
    for seed in range(setting.seeds):
        for cell in cells:
            runs = runs_in(answers)
            if not cell.of(runs, [seed]):
                yield cell, rate_of(cell, runs), seed


def run_all(setting: Setting, folder: Path) -> None:
    """Train what has no row yet."""
    import torch
    import transformers

    answers = folder / "runs.csv"
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    private = [cell for cell in cells_of(setting) if cell.mechanism != WITHOUT]
    certificates = {cell: certificate_of(setting, cell, folder) for cell in private}
    data = data_of(setting)
    model = public_model(setting, data.public)
    before = round(loss_on(model, data.test), 6)
    if any(abs(run.public - before) > 1e-4 for run in runs_in(answers)):
        sys.exit(
            f"The public model has a loss of {before} here, and another in {answers}: the texts or the libraries are "
            "others. Pass another --folder."
        )
    for cell, rate, seed in missing(setting, answers):
        certificate = certificates.get(cell)
        start = time.process_time()
        mechanism = None if certificate is None else certificate.mechanism
        trainer = trained(setting, model, data.training, rate, seed, mechanism)
        losses = [round(loss_on(trainer.model, documents), 6) for documents in (data.validation, data.test)]
        noise = math.nan
        if certificate is not None:
            record = trainer.record(certificate)
            if record.certificate is None or record.violations:
                sys.exit(f"The run of {cell.mechanism!r} with seed {seed} departed from its plan: {record.violations}.")
            noise = certificate.mechanism.sigma
        run = Run(
            mechanism=cell.mechanism,
            target=cell.target,
            rate=rate,
            seed=seed,
            validation=losses[0],
            test=losses[1],
            public=before,
            noise_multiplier=noise,
            seconds=round(time.process_time() - start, 2),
        )
        append(answers, run)
        print(run, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, resuming."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.language_model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of rows and certificates, to go on from")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    run_all(SETTING, options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
