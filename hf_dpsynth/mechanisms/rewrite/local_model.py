"""A language model on this machine that may read private text: loading, and text as its tokens.

The one rule: private text stays in this process. A model is a name or a folder, never an address; the text is no part
of a log, a warning or an error; what stands in a text is never taken for a special token of the model.
"""

import inspect
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hf_dpsynth.devices import Devices, best_dtype
from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.mechanisms.rewrite import fixed_shapes
from hf_dpsynth.mechanisms.rewrite.fixed_shapes import Draw
from hf_dpsynth.models.catalog import model_id, pull
from hf_dpsynth.models.key_value_cache import growing_cache
from hf_dpsynth.models.packed_linear import pack_linear_layers

_DEFAULT = "smollm2-135m"
_MARK = "zqtextqz"
_MOST_CHARACTERS = 64  # a token, of a text that is cut before it is read
_MASKED = ("ForMaskedLM", "ForPreTraining")


def local_name(mechanism: str, generator: Any) -> str:
    """Return the name or folder of a local model.

    Args:
        mechanism (`str`): its name.
        generator (`Any`): what the user passed; a small chat model of the catalogue when None.
    Raises:
        ConfigError: it is an address or an object, whose weights may be anywhere.
    """
    name = _DEFAULT if generator is None else generator
    if isinstance(name, os.PathLike):
        name = os.fspath(name)
    if not isinstance(name, str) or "://" in name:
        given = "an address" if isinstance(name, str) else f"a {type(generator).__name__}"
        raise ConfigError(
            f"{mechanism} shows private text to its model, so generator= takes a local model alone: a short name, a "
            f"folder or a Hub id. It is {given}; private text is sent nowhere."
        )
    return name


@dataclass(frozen=True)
class Loaded:
    """A model in memory with what is to be known about it. Public."""

    model: Any
    tokenizer: Any
    masked: bool
    context: int
    accepts: frozenset[str]
    vocabulary: int
    specials: frozenset[int]
    ends: frozenset[int]


class LocalModel:
    """A causal or masked language model by name; it is loaded at the first use, and travels to workers by its name.

    Args:
        name (`str`): a short name of the catalogue, a folder or a Hub id.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def of(cls, name: str, model: Any, tokenizer: Any) -> "LocalModel":
        """Return a causal model in memory, which is used as it is and does not travel."""
        made = cls(name)
        made.loaded = described(model, tokenizer, False)
        return made

    @cached_property
    def id(self) -> str:
        """The public name of the model."""
        return model_id(self.name)

    @cached_property
    def loaded(self) -> Loaded:
        """The model in memory.

        Raises:
            AssetError: it could not be fetched or loaded, or its folder lacks weights.
        """
        return _load(self.name)

    def __reduce__(self) -> tuple[type["LocalModel"], tuple[str]]:
        return LocalModel, (self.name,)

    def __repr__(self) -> str:
        return f"LocalModel({self.name!r})"

    def read(self, texts: Sequence[str], most: int) -> list[list[int]]:
        """Return the first tokens of each text. Sensitive.

        Args:
            texts (`Sequence[str]`): any texts; what is no Unicode becomes '?'. Sensitive.
            most (`int`): tokens to keep of a text, which is cut at 64 characters a token before.
        """
        whole = [text[: most * _MOST_CHARACTERS].encode("utf-8", "replace").decode() for text in texts]
        if not whole:
            return []
        # not verbose: a tokenizer's warning of a text beyond the context gives its number of tokens
        encoded = self.loaded.tokenizer(whole, add_special_tokens=False, split_special_tokens=True, verbose=False)
        return [tokens[:most] for tokens in encoded["input_ids"]]

    def write(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens without special ones."""
        loaded = self.loaded
        return str(loaded.tokenizer.decode([token for token in tokens if token not in loaded.specials]))

    def prompt(self, template: str) -> tuple[list[int], list[int]]:
        """Return the tokens before and after a text in a prompt. Public.

        Args:
            template (`str`): holds `{text}` once; it becomes the user's turn where the model has a chat template.
        Raises:
            ConfigError: the chat template does not write a text as it stands.
        """
        tokenizer = self.loaded.tokenizer
        written, start = template.replace("{text}", _MARK), tokenizer.bos_token_id
        first = [] if start is None else [int(start)]
        if tokenizer.chat_template is not None:
            chat = [{"role": "user", "content": written}]
            written, first = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False), []
        parts = written.split(_MARK)
        if len(parts) != 2:
            raise ConfigError(f"the chat template of {self.id} does not write a text once. Use another model.")
        before, after = (tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"] for part in parts)
        return [*first, *before], list(after)

    def pair(self) -> tuple[list[int], list[int], list[int]]:
        """Return the tokens before, between and after the two texts of a masked model. Public.

        Raises:
            ConfigError: its tokenizer does not put two texts in one row, or has no mask.
        """
        tokenizer = self.loaded.tokenizer
        mask = tokenizer.mask_token_id
        row = [] if mask is None else tokenizer(tokenizer.mask_token, tokenizer.mask_token)["input_ids"]
        places = [place for place, token in enumerate(row) if token == mask]
        if len(places) != 2:
            raise ConfigError(
                f"the tokenizer of {self.id} has no mask token, or takes no two texts. Use another model."
            )
        return row[: places[0]], row[places[0] + 1 : places[1]], row[places[1] + 1 :]

    def continued(self, texts: Sequence[str], template: str, most: int, count: int, draw: Draw) -> list[str]:
        """Return the continuation of a prompt with each text, of at most `count` tokens, stripped of white space.

        Args:
            texts (`Sequence[str]`): cut at `most` tokens. Sensitive.
            template (`str`): the prompt.
            most (`int`): tokens of a text that are read.
            count (`int`): tokens to draw.
            draw (`Callable[[int, int, np.ndarray], int]`): gives a token for the number of a text, of a step, and
                logits of the whole vocabulary.
        """
        tokens = fixed_shapes.continued(self.loaded, self.prompt(template), self.read(texts, most), most, count, draw)
        return [self.write(found).strip() for found in tokens]

    def redrawn(self, texts: Sequence[str], template: str, most: int, draw: Draw) -> list[str]:
        """Return each text with all of its first `most` tokens drawn anew.

        Args:
            texts (`Sequence[str]`): cut at `most` tokens. Sensitive.
            template (`str`): the prompt of a causal model.
            most (`int`): tokens of a text that are read.
            draw (`Callable[[int, int, np.ndarray], int]`): gives the number of a token among those that are not
                special, for the number of a text, of its token, and logits.
        """
        loaded, read = self.loaded, self.read(texts, most)
        allowed = np.array([token for token in range(loaded.vocabulary) if token not in loaded.specials])
        found = [[0] * len(tokens) for tokens in read]
        if loaded.masked:
            scored = fixed_shapes.masked(loaded, self.pair(), read, most)
        else:
            scored = fixed_shapes.followed(loaded, self.prompt(template), read, most)
        for number, position, logits in scored:
            found[number][position] = int(allowed[draw(number, position, logits[allowed])])
        return [self.write(tokens).strip() for tokens in found]

    def check_room(self, mechanism: str, tokens: int) -> None:
        """Refuse a model whose context is too short for the longest row.

        Raises:
            ConfigError: it is.
        """
        if tokens > self.loaded.context:
            raise ConfigError(
                f"{mechanism} needs {tokens} tokens a row; {self.id} takes {self.loaded.context}. Lower max_tokens, "
                "or the number of new tokens where there is one, or shorten the prompt."
            )


def _load(name: str) -> Loaded:
    """Load a model with its output layer, and its tokenizer."""
    torch, transformers = (need(module, extra="models", what="rewriting") for module in ("torch", "transformers"))
    folder, devices = pull(name), Devices.current()
    devices.limit_threads()
    device = devices.torch_device()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
        masked = any(kind.endswith(_MASKED) for kind in config.architectures or ())
        kind = transformers.AutoModelForMaskedLM if masked else transformers.AutoModelForCausalLM
        model, report = kind.from_pretrained(
            folder, dtype=getattr(torch, best_dtype(device)), output_loading_info=True, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise AssetError(f"{name} does not load as a causal or masked language model: {error}") from error
    if report["missing_keys"]:
        raise AssetError(f"{name} lacks weights of a language model, its output layer perhaps. Use another model.")
    model = model.to(device).eval()
    if device.type == "cpu" and not masked and growing_cache(model.config, 0)[1]:
        pack_linear_layers(model)
    return described(model, tokenizer, masked)


def described(model: Any, tokenizer: Any, masked: bool) -> Loaded:
    """Return a model in memory with what is to be known about it."""
    stated = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ends = {*(stated if isinstance(stated, list) else [stated]), tokenizer.eos_token_id} - {None}
    added = {token for token, kind in tokenizer.added_tokens_decoder.items() if kind.special}
    config = model.config.get_text_config()
    longest = getattr(config, "max_position_embeddings", None) or tokenizer.model_max_length
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        masked=masked,
        context=int(min(longest, tokenizer.model_max_length)),
        accepts=frozenset(inspect.signature(model.forward).parameters),
        vocabulary=min(len(tokenizer), config.vocab_size),
        specials=frozenset(added | set(tokenizer.all_special_ids)),
        ends=frozenset(ends),
    )
