"""A small language model, its tokenizer, and sentences about arithmetic, for the examples with TRL; no downloads."""

import datasets
import torch
import transformers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

LETTERS = " +=0123456789abcdefghijklmnopqrstuvwxyz."
EXAMPLES = 600
QUIET = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_strategy": "no"}


def tokenizer() -> transformers.PreTrainedTokenizerFast:
    """One token a letter; made of no data."""
    words = {letter: at for at, letter in enumerate(["<pad>", "<end>", *LETTERS])}
    letters = Tokenizer(models.WordLevel(words, unk_token="."))
    letters.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=letters, pad_token="<pad>", eos_token="<end>")


def network() -> transformers.PreTrainedModel:
    """A transformer of two layers, untrained."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(LETTERS) + 2,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=1,
        pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config)


def texts() -> datasets.Dataset:
    """Sums in words: the private data of supervised fine-tuning, one sentence an example."""
    return datasets.Dataset.from_list([{"text": f"{a}+{b}={a + b}."} for a, b in _terms()])


def preferences() -> datasets.Dataset:
    """Pairs of a right and a wrong answer: the private data of preference optimization, one pair an example."""
    pairs = [
        {"prompt": f"{a}+{b}=", "chosen": f"{a + b}.", "rejected": f"{a + b + 1 + a % 3} or so."} for a, b in _terms()
    ]
    return datasets.Dataset.from_list(pairs)


def _terms() -> list[tuple[int, int]]:
    return [(at % 30, at * 7 % 113) for at in range(EXAMPLES)]
