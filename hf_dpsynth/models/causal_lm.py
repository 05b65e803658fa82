"""Local causal language models: prompts in, sampled texts out, as fast as the hardware gives them.

Prompts are public or already privatized, and still none is ever logged. Every row draws from its own stream, so a text
depends on its prompt, its place and the seed; torch's global generator is never touched. Tokens are drawn by inverting
the cumulative distribution (one uniform a token), which is exact in law and cheaper than a multinomial draw.
"""

import inspect
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hf_dpsynth.devices import Devices, best_dtype
from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.logging import get_logger, progress_bar
from hf_dpsynth.models.base import check_sampling
from hf_dpsynth.models.catalog import model_id, pull
from hf_dpsynth.models.key_value_cache import growing_cache
from hf_dpsynth.models.likelihood import perplexities
from hf_dpsynth.models.packed_linear import pack_linear_layers
from hf_dpsynth.models.sampling import choose, row_uniforms

_SHORTEST_SHARED_PREFIX = 8

logger = get_logger(__name__)


def load_pretrained(name: str, dtype: str) -> tuple[Any, Any]:
    """Return a causal language model and its tokenizer, as they lie in the folder that `pull` provides.

    Args:
        name (`str`): a short name of the catalogue, a local folder or a Hub id.
        dtype (`str`): "float32" or "bfloat16".
    Raises:
        AssetError: the model could not be fetched or loaded.
    """
    torch, transformers = (need(module, extra="models", what="CausalLM") for module in ("torch", "transformers"))
    folder = pull(name)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    except (OSError, ValueError) as error:
        raise AssetError(f"{name} does not load as a causal language model: {error}") from error
    return model, tokenizer


class CausalLM:
    """A local chat or base model that satisfies `TextGenerator`.

    Args:
        model (`str`): a short name of the catalogue, a local folder or a Hub id.
        batch_size (`int`): prompts that are generated together.
        top_p (`float`): sample among the likeliest tokens that hold this share of the probability; 1 samples them all.
        top_k (`int`): sample among so many likeliest tokens; 0 samples them all.
        dtype (`str`, *optional*): "float32" or "bfloat16"; what `devices.best_dtype` says when missing.
        max_prompt_tokens (`int`): longest prompt that is accepted, chat template included.

    Example:
        >>> CausalLM("smollm2-135m", batch_size=8).id
        'smollm2-135m'
    """

    def __init__(
        self,
        model: str = "smollm2-135m",
        *,
        batch_size: int = 64,
        top_p: float = 1.0,
        top_k: int = 0,
        dtype: str | None = None,
        max_prompt_tokens: int = 4096,
    ) -> None:
        if not batch_size >= 1:
            raise ConfigError(f"batch_size is {batch_size}; it is at least 1")
        if not 0 < top_p <= 1:
            raise ConfigError(f"top_p is {top_p}; it is above 0 and at most 1")
        if not top_k >= 0:
            raise ConfigError(f"top_k is {top_k}; it is 0 or more")
        if dtype not in (None, "float32", "bfloat16"):
            raise ConfigError(f"dtype is {dtype!r}; it is 'float32', 'bfloat16' or None")
        if not max_prompt_tokens >= 1:
            raise ConfigError(f"max_prompt_tokens is {max_prompt_tokens}; it is at least 1")
        self.model = model
        self.batch_size = batch_size
        self.top_p = top_p
        self.top_k = top_k
        self.dtype = dtype
        self.max_prompt_tokens = max_prompt_tokens
        self._loaded: _Loaded | None = None

    @property
    def id(self) -> str:
        """Return the public name of the model."""
        return model_id(self.model)

    def __repr__(self) -> str:
        return f"CausalLM({self.model!r}, batch_size={self.batch_size}, top_p={self.top_p})"

    def generate(self, prompts: Sequence[str], *, max_new_tokens: int, temperature: float, seed: int) -> list[str]:
        """Continue each prompt once.

        Args:
            prompts (`Sequence[str]`): public or already privatized texts, without a chat template.
            max_new_tokens (`int`): most tokens of a text; it ends earlier where the model ends it.
            temperature (`float`): 1 samples the model's distribution, 0 takes the likeliest token each time.
            seed (`int`): seed of the public streams; the same prompts and seed give the same texts on one machine.
        Returns:
            `list[str]`: one text a prompt, in order, without special tokens.
        Raises:
            ConfigError: an argument is out of range, or a prompt is longer than `max_prompt_tokens` or than what the
                model's context leaves. The message names the prompt's number, never its text.
            AssetError: the model could not be fetched.
        """
        check_sampling(max_new_tokens, temperature)
        if not prompts:
            return []
        loaded = self._load()
        encoded = loaded.encode(prompts)
        found = self.continued(encoded, max_new_tokens=max_new_tokens, temperature=temperature, seed=seed)
        return [loaded.decode(tokens) for tokens in found]

    def continued(
        self, encoded: Sequence[list[int]], *, max_new_tokens: int, temperature: float, seed: int
    ) -> list[list[int]]:
        """Continue each prompt that is given as tokens once.

        Args:
            encoded (`Sequence[list[int]]`): tokens of each prompt, at least one each.
            max_new_tokens (`int`): most tokens of a text.
            temperature (`float`): 0 takes the likeliest token each time.
            seed (`int`): seed of the public streams.
        Returns:
            `list[list[int]]`: the new tokens of each prompt, without an end token.
        Raises:
            ConfigError: a prompt is too long.
        """
        loaded = self._load()
        self._check_lengths(encoded, max_new_tokens, loaded.context)
        order = sorted(range(len(encoded)), key=lambda row: len(encoded[row]), reverse=True)
        bar = _TokenBar(total=len(encoded) * max_new_tokens, shown=len(encoded) > self.batch_size)
        found: list[list[int]] = [[] for _ in encoded]
        with bar:
            for start in range(0, len(order), self.batch_size):
                rows = order[start : start + self.batch_size]
                batch = Batch(loaded, [encoded[row] for row in rows], max_new_tokens)
                uniforms = row_uniforms(rows, max_new_tokens, seed)
                made = batch.run(uniforms, temperature, self.top_p, bar, top_k=self.top_k)
                for row, tokens in zip(rows, made, strict=True):
                    found[row] = tokens
        return found

    @classmethod
    def of(
        cls, model: Any, tokenizer: Any, *, batch_size: int = 64, top_k: int = 0, ends: frozenset[int] | None = None
    ) -> "CausalLM":
        """Return a generator around a model in memory, which is used as it is.

        Args:
            model (`torch.nn.Module`): a causal language model on its device, in evaluation mode.
            tokenizer (`transformers.PreTrainedTokenizerBase`): its tokenizer.
            batch_size (`int`): prompts that are generated together.
            top_k (`int`): sample among so many likeliest tokens; 0 samples them all.
            ends (`frozenset[int]`, *optional*): the tokens that end a text; the model's own when missing.
        """
        made = cls(getattr(model.config, "name_or_path", "") or "model", batch_size=batch_size, top_k=top_k)
        loaded = _Loaded.of(model, tokenizer)
        made._loaded = loaded if ends is None else replace(loaded, ends=ends)
        return made

    def perplexity(self, texts: Sequence[str]) -> np.ndarray:
        """Return the perplexity of each public or privatized text, NaN for one of fewer than two tokens."""
        return perplexities(texts, *self.load())

    def load(self) -> tuple[Any, Any]:
        """Return the torch model and its tokenizer, loading them at the first use: for scoring, not for training.

        Raises:
            AssetError: the model could not be fetched.
        """
        loaded = self._load()
        return loaded.model, loaded.tokenizer

    def _load(self) -> "_Loaded":
        """Load the model at the first use."""
        if self._loaded is None:
            self._loaded = _Loaded.from_name(self.model, self.dtype)
        return self._loaded

    def _check_lengths(self, encoded: Sequence[list[int]], max_new_tokens: int, context: int) -> None:
        """Refuse prompts that do not fit, before anything is generated."""
        limit = min(self.max_prompt_tokens, context - max_new_tokens)
        for number, tokens in enumerate(encoded):
            if len(tokens) > limit:
                raise ConfigError(
                    f"prompt {number} has {len(tokens)} tokens; {limit} fit (max_prompt_tokens="
                    f"{self.max_prompt_tokens}, context {context} less max_new_tokens={max_new_tokens}). "
                    "Shorten the prompt or lower max_new_tokens."
                )


@dataclass(frozen=True)
class _Loaded:
    """A model in memory with what generation needs to know about it."""

    model: Any
    tokenizer: Any
    ends: frozenset[int]
    context: int
    accepts: frozenset[str]

    @classmethod
    def from_name(cls, name: str, dtype: str | None) -> "_Loaded":
        """Load a model and its tokenizer from a folder that `pull` provides."""
        devices = Devices.current()
        devices.limit_threads()
        device = devices.torch_device()
        model, tokenizer = load_pretrained(name, dtype or best_dtype(device))
        return cls.of(model.to(device).eval(), tokenizer)

    @classmethod
    def of(cls, model: Any, tokenizer: Any) -> "_Loaded":
        """Make a model in memory ready to generate; its linear layers are packed where that is faster."""
        if model.device.type == "cpu" and growing_cache(model.config, 0)[1]:
            logger.debug("packed the weights of %d linear layers", pack_linear_layers(model))
        stated = model.generation_config.eos_token_id
        ends = set(stated if isinstance(stated, list) else [stated]) | {tokenizer.eos_token_id}
        config = model.config.get_text_config()
        context = getattr(config, "max_position_embeddings", None) or tokenizer.model_max_length
        accepts = frozenset(inspect.signature(model.forward).parameters)
        return cls(model, tokenizer, frozenset(end for end in ends if end is not None), int(context), accepts)

    def encode(self, prompts: Sequence[str]) -> list[list[int]]:
        """Apply the chat template, if the model has one, and tokenize."""
        templated = self.tokenizer.chat_template is not None
        texts = list(prompts)
        if templated:
            chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
            texts = self.tokenizer.apply_chat_template(chats, add_generation_prompt=True, tokenize=False)
        encoded: list[list[int]] = self.tokenizer(texts, add_special_tokens=not templated)["input_ids"]
        tokenizer = self.tokenizer
        start = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
        return [tokens or [start or 0] for tokens in encoded]

    def decode(self, tokens: list[int]) -> str:
        """Return the text of generated tokens without special tokens."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))


class _TokenBar:
    """A progress bar over generated tokens; a text that ends early takes its rest off the total."""

    def __init__(self, total: int, shown: bool) -> None:
        self._bar = progress_bar(total=total, unit="tok", desc="Generating") if shown else None
        self._started = time.perf_counter()

    def __enter__(self) -> "_TokenBar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, tokens: int, saved: int) -> None:
        """Count the tokens of one step and those that finished texts leave unused."""
        if self._bar is None:
            return
        self._bar.total -= saved
        self._bar.update(tokens)
        rate = self._bar.n / (time.perf_counter() - self._started)
        self._bar.set_postfix({"tokens/s": f"{rate:.0f}"}, refresh=False)


class Batch:
    """Prompts that are generated together: one prefill, then one token a step for the rows that are not finished.

    Tokens that all prompts begin with (a chat template's head, a shared instruction) are prefilled once. Finished rows
    leave the batch at once.

    Args:
        loaded (`_Loaded`): the model.
        encoded (`list[list[int]]`): tokens of each prompt.
        max_new_tokens (`int`): most tokens of a text.
    """

    def __init__(self, loaded: _Loaded, encoded: list[list[int]], max_new_tokens: int) -> None:
        self._torch = need("torch", extra="models", what="CausalLM")
        self._loaded = loaded
        self._max_new_tokens = max_new_tokens
        self._cache, self._cache_is_plain = growing_cache(loaded.model.config, max_new_tokens)
        shared = _shared_prefix(encoded) if self._cache_is_plain else 0
        self._prefix, self._rests = encoded[0][:shared], [tokens[shared:] for tokens in encoded]
        self._width = shared + max(len(rest) for rest in self._rests)
        self._mask = self._torch.ones((len(encoded), self._width + max_new_tokens), dtype=self._torch.long)
        self._lengths = self._torch.tensor([len(tokens) for tokens in encoded])
        self.prefill_seconds = 0.0
        self.sampling_seconds = 0.0

    def run(
        self, uniforms: Any, temperature: float, top_p: float, bar: "_TokenBar | None" = None, *, top_k: int = 0
    ) -> list[list[int]]:
        """Return the generated tokens of each prompt.

        Args:
            uniforms (`torch.Tensor`): float64 in [0, 1), shape (prompts, max_new_tokens).
            temperature (`float`): 0 for the likeliest token.
            top_p (`float`): share of the probability to sample in.
            bar (`_TokenBar`, *optional*): counts tokens.
            top_k (`int`): how many likeliest tokens to sample among; 0 for all.
        """
        texts: list[list[int]] = [[] for _ in self._rests]
        live = list(range(len(texts)))
        with self._torch.inference_mode():
            logits = self._prefill()
            for step in range(self._max_new_tokens):
                chosen = self._choose(logits, uniforms[live, step], temperature, top_p, top_k)
                places = [place for place, token in enumerate(chosen.tolist()) if token not in self._loaded.ends]
                if bar is not None:
                    bar.advance(len(live), (len(live) - len(places)) * (self._max_new_tokens - step - 1))
                if len(places) < len(live):
                    live = [live[place] for place in places]
                    chosen = chosen[places]
                    self._keep(places)
                for row, token in zip(live, chosen.tolist(), strict=True):
                    texts[row].append(token)
                if not live or step + 1 == self._max_new_tokens:
                    break
                logits = self._step(chosen, step)
        return texts

    def _choose(self, logits: Any, uniforms: Any, temperature: float, top_p: float, top_k: int) -> Any:
        """Draw the next tokens and note the time it takes."""
        started = time.perf_counter()
        chosen = choose(logits, uniforms.to(logits.device), temperature=temperature, top_p=top_p, top_k=top_k)
        self.sampling_seconds += time.perf_counter() - started
        return chosen

    def _prefill(self) -> Any:
        """Read the prompts into the cache: the shared prefix once, then the rests with padding on their left."""
        started = time.perf_counter()
        torch, shared, rows = self._torch, len(self._prefix), len(self._rests)
        if shared:
            positions = torch.arange(shared)[None]
            self._forward(torch.tensor([self._prefix]), positions, torch.ones((1, shared), dtype=torch.long))
            self._cache.batch_repeat_interleave(rows)
        tokens = torch.zeros((rows, self._width - shared), dtype=torch.long)
        for row, rest in enumerate(self._rests):
            padding = self._width - shared - len(rest)
            self._mask[row, shared : shared + padding] = 0
            tokens[row, padding:] = torch.tensor(rest)
        positions = (self._mask[:, : self._width].cumsum(-1) - 1).clamp(min=0)[:, shared:]
        logits = self._forward(tokens, positions, self._mask[:, : self._width])
        self.prefill_seconds += time.perf_counter() - started
        return logits

    def _step(self, chosen: Any, step: int) -> Any:
        """Feed the tokens just drawn and return the logits of the next ones."""
        positions = (self._lengths + step)[:, None]
        return self._forward(chosen[:, None], positions, self._mask[:, : self._width + step + 1])

    def _forward(self, tokens: Any, positions: Any, mask: Any) -> Any:
        """Run the model and return the last position's logits."""
        model = self._loaded.model
        inputs = {"input_ids": tokens, "attention_mask": mask, "position_ids": positions}
        placed = {name: tensor.to(model.device) for name, tensor in inputs.items() if name in self._loaded.accepts}
        return model(**placed, cache=self._cache, use_cache=True, logits_to_keep=1).logits[:, -1]

    def _keep(self, places: list[int]) -> None:
        """Drop finished rows."""
        if places:
            kept = self._torch.tensor(places)
            self._mask, self._lengths = self._mask[kept], self._lengths[kept]
            self._cache.batch_select_indices(kept.to(self._loaded.model.device))


def _shared_prefix(encoded: list[list[int]]) -> int:
    """Return how many tokens all prompts begin with, leaving each at least one; 0 where it is not worth a pass."""
    if len(encoded) == 1:
        return 0
    first, last = min(encoded), max(encoded)
    limit = min(len(tokens) for tokens in encoded) - 1
    length = next((n for n in range(limit) if first[n] != last[n]), max(limit, 0))
    return length if length >= _SHORTEST_SHARED_PREFIX else 0
