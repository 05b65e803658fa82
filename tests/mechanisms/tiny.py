"""Random models of two layers with a vocabulary of a few words: real architectures that train in milliseconds."""

import re

from tests.stubs import WORDS

VOCABULARY = (
    "<pad> <s> </s> <unk> label : text pos neg stars one two A review awful fun bright private".split() + WORDS
)


def tokenizer(*, end="</s>", start="<s>", pad="<pad>"):
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(dict.fromkeys(VOCABULARY))}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s+|(?=:)|(?=zq)"), "removed")
    assert re.fullmatch(r"</?\w+>", end or "<x>")
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=end, bos_token=start, pad_token=pad, unk_token="<unk>"
    )


def save(folder, kind="llama", **tokens):
    """Write a random model and its tokenizer to a folder and return its path."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    words = tokenizer(**tokens)
    ids = {"bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
    torch.manual_seed(0)
    if kind == "llama":
        config = LlamaConfig(
            vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=True, **ids,
        )  # fmt: skip
        model = LlamaForCausalLM(config)
    else:
        config = GPT2Config(vocab_size=len(words), n_embd=16, n_layer=2, n_head=2, n_positions=64, **ids)
        model = GPT2LMHeadModel(config)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


def letters(*, end="</s>", specials=(), chat_template=None):
    """A tokenizer of bytes, which loses nothing, with special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    words = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token=end, additional_special_tokens=list(specials)
    )
    words.chat_template = chat_template
    return words


def save_letters(folder, words=None):
    """Write a random model over bytes and its tokenizer to a folder and return its path."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    words = words or letters()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256, tie_word_embeddings=True,
        bos_token_id=words.bos_token_id, eos_token_id=words.eos_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


def save_masked(folder, *, mask="<mask>", head=True):
    """Write a random BERT over the words of the vocabulary to a folder and return its path."""
    import torch
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertForMaskedLM, BertModel

    words = tokenizer()
    words.add_special_tokens({"mask_token": mask})
    ends = [(word, words.convert_tokens_to_ids(word)) for word in ("<s>", "</s>")]
    words.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=ends
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, pad_token_id=words.pad_token_id, initializer_range=0.5,
    )  # fmt: skip
    (BertForMaskedLM if head else BertModel)(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)
