"""Fine-tune a small language model with low-rank adapters and Hugging Face's Trainer, and leave a certificate.

    python examples/training/lora_text.py --out lora [--bf16] [--gradient-checkpointing]
    torchrun --nproc-per-node 2 examples/training/lora_text.py --out lora

Nothing is downloaded, as the text comes with Python. The reference of the language stands for public text, on which a
model of 100,000 parameters learns letters and words. Docstrings of the standard library stand for private text, one
docstring an example; adapters are trained on 3,500 of them with the Trainer of hockeystick, and all else is frozen.
Several processes share each batch, and the first one writes the results.
Needs ``pip install '.[huggingface]'``; takes about a minute and a half.
"""

import argparse
import importlib
import inspect
import math
import os
import subprocess
import sys
from pathlib import Path
from pydoc_data.topics import topics

import torch
import transformers
from peft import LoraConfig, get_peft_model

import hockeystick as hs

PLAN = Path(__file__).parent / "lora.toml"
LENGTH = 64
PROCESSES = int(os.environ.get("WORLD_SIZE", "1"))
IN_MEMORY = 100
"""Examples at once, on each process."""
MODULES = """
argparse array ast asyncio base64 bisect calendar cmath collections collections.abc configparser contextlib
csv ctypes datetime decimal difflib dis email.message enum fractions functools gettext hashlib heapq hmac html
http.client http.cookies imaplib inspect io itertools json locale logging logging.handlers lzma mailbox math mimetypes
multiprocessing.pool numbers operator optparse os os.path pathlib pickle pickletools platform plistlib pprint queue
random re sched secrets select shelve shutil signal smtplib socket sqlite3 ssl statistics string struct subprocess
symtable sys tarfile tempfile textwrap threading time timeit tokenize traceback types typing unicodedata unittest
unittest.mock urllib.parse urllib.request uuid warnings wave weakref xml.dom.minidom xml.etree.ElementTree zipfile zlib
"""


def example(text: str) -> dict[str, torch.Tensor]:
    """The first letters of a text, one token each, padded by zeros that are not predicted."""
    letters = torch.tensor(list(text.encode("ascii", "replace")[:LENGTH]))
    padding = LENGTH - len(letters)
    return {
        "input_ids": torch.nn.functional.pad(letters, (0, padding)),
        "labels": torch.nn.functional.pad(letters, (0, padding), value=-100),
    }


def docstrings() -> list[str]:
    """Docstrings of functions, classes and methods of the standard library, none twice, in a fixed order."""
    texts = set()
    for name in MODULES.split():
        module = importlib.import_module(name)
        things = [
            thing for _, thing in inspect.getmembers(module) if inspect.isroutine(thing) or inspect.isclass(thing)
        ]
        methods = [method for thing in things if inspect.isclass(thing) for _, method in inspect.getmembers(thing)]
        documented = [
            inspect.getdoc(thing) for thing in things + [method for method in methods if inspect.isroutine(method)]
        ]
        texts |= {" ".join(text.split()) for text in documented if isinstance(text, str) and len(text) > 20}
    return sorted(texts, key=lambda text: text[::-1])


def public_text() -> list[dict[str, torch.Tensor]]:
    """The reference of the language, in pieces."""
    text = " ".join(" ".join(topics[name].split()) for name in sorted(topics))
    return [example(text[first : first + LENGTH]) for first in range(0, len(text) - LENGTH, LENGTH)]


def network() -> transformers.PreTrainedModel:
    """A transformer with two layers, untrained."""
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=LENGTH,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.LlamaForCausalLM(config)


def arguments(folder: Path, **options) -> transformers.TrainingArguments:
    """Training arguments on the CPU that keep nothing but what is asked for."""
    quiet = {
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
    }
    return transformers.TrainingArguments(str(folder), **quiet | options)


def main() -> None:
    """Learn from public text, then privately from docstrings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--public-steps", type=int, default=300, help="of training on public text")
    parser.add_argument("--bf16", action="store_true", help="frozen weights in bfloat16, and layers under autocast")
    parser.add_argument("--gradient-checkpointing", action="store_true", help="run layers again instead of keeping all")
    parser.add_argument("--out", type=Path, default=Path("lora"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    plan = hs.Plan.load(PLAN)
    texts = [example(text) for text in docstrings()]
    private, test = texts[: plan.data.num_examples], texts[plan.data.num_examples :][:500]

    torch.manual_seed(0)
    learning = {"learning_rate": 3e-3, "per_device_train_batch_size": 64 // PROCESSES}
    public = transformers.Trainer(
        network(), arguments(given.out, max_steps=given.public_steps, **learning), train_dataset=public_text()
    )
    public.train()

    frozen = public.model.to(torch.bfloat16) if given.bf16 else public.model
    adapters = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    mechanism = hs.calibrate(plan.mechanism(), epsilon=plan.target.epsilon, delta=plan.target.delta)
    trainer = hs.huggingface.Trainer(
        plan=mechanism,
        model=get_peft_model(frozen, adapters),
        args=arguments(
            given.out,
            num_train_epochs=plan.data.epochs,
            per_device_train_batch_size=IN_MEMORY,
            gradient_accumulation_steps=math.ceil(plan.data.batch_size / (IN_MEMORY * PROCESSES)),
            learning_rate=3e-3,
            max_grad_norm=0.5,  # of each example
            bf16=given.bf16,
            activation_checkpointing=given.gradient_checkpointing,
        ),
        train_dataset=private,
        eval_dataset=test,
    )
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    trainer.save_model(given.out / "adapters")

    if not trainer.is_world_process_zero():
        return
    certificate = trainer.certificate(plan.target.delta)
    certificate.save(given.out / "lora.certificate.json")
    trainer.record(certificate).save(given.out / "lora.run.json")
    print(f"epsilon {certificate.epsilon.upper:.4f}  noise multiplier {mechanism.sigma:.3f}")
    print(f"loss on {len(test)} other docstrings: {before:.3f} before, {after:.3f} after")
    subprocess.run(
        [sys.executable, "-m", "hockeystick", "verify", str(given.out / "lora.certificate.json")], check=True
    )


if __name__ == "__main__":
    main()
