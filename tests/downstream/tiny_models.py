"""Random models of two layers, and rows that they and a word CNN can learn."""

import numpy as np
import torch
import transformers
from datasets import ClassLabel, Dataset, Features, Value
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

GOOD, BAD = "good great fun bright".split(), "bad awful dull slow".split()
EXTRA = "film plot actor the a : Text Label each as one of text".split()
CANARY = "zqprivate"
MARKS = ["<s>", "</s>", "<unk>", "<pad>"]
WORDS = [*MARKS, *GOOD, *BAD, *EXTRA, "neg", "pos", "very", *(f"w{number}" for number in range(20))]
ENDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 3}
SIZES = {"vocab_size": len(WORDS), "hidden_size": 32, "num_hidden_layers": 2, "max_position_embeddings": 256}
LLAMA = {"intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
CAUSAL = {
    "llama": lambda: transformers.LlamaConfig(**SIZES, **LLAMA, **ENDS),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=len(WORDS), n_embd=32, n_layer=2, n_head=4, n_positions=256, **ENDS
    ),
    "sliding window": lambda: transformers.MistralConfig(**SIZES, **LLAMA, **ENDS, sliding_window=8),
}


def _save_tokenizer(folder):
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(",", " ")
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>"
    ).save_pretrained(folder)


def save_causal(folder, kind):
    """Write a random causal model whose weights are large enough to prefer some words."""
    _save_tokenizer(folder)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = transformers.AutoModelForCausalLM.from_config(CAUSAL[kind]())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(4)
        model.save_pretrained(folder)
    return str(folder)


def save_encoder(folder):
    """Write a random BERT."""
    _save_tokenizer(folder)
    sizes = SIZES | {"num_attention_heads": 4, "intermediate_size": 64, "pad_token_id": 3}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        transformers.BertModel(transformers.BertConfig(**sizes)).save_pretrained(folder)
    return str(folder)


def rows(number=120, *, first=0, canary=CANARY, names=("neg", "pos")):
    """Labelled reviews, each with a word of its own."""
    rng = np.random.default_rng(first)
    texts = [
        " ".join([*rng.choice(GOOD if row % 2 else BAD, 4), "film", f"{canary}{row}"])
        for row in range(first, first + number)
    ]
    features = Features({"text": Value("string"), "label": ClassLabel(names=list(names))})
    return Dataset.from_dict({"text": texts, "label": [row % 2 for row in range(first, first + number)]}, features)
