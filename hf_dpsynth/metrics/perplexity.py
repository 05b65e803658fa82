"""Perplexity: how surprising texts are to a causal language model, exp of the mean negative log-likelihood of a token.

Two uses that must not be mixed up. `perplexity` scores synthetic text under a model of the reader's choice: fluency,
which dull text has too. `test_perplexity` scores real test text under the model that generated: the best proxy of how
useful its text will be, and a private figure. Every token weighs the same. The first token is scored after the model's
start token; logarithms are taken in float32, sums in float64.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.logging import HIDDEN, progress_bar
from hf_dpsynth.metrics.base import Metric, Result, check_count, check_texts
from hf_dpsynth.models.likelihood import context, negative_log, start_token

if TYPE_CHECKING:
    from hf_dpsynth.models.causal_lm import CausalLM


class Likelihoods(NamedTuple):
    """What `likelihoods` returns; as sensitive as the texts.

    Args:
        negative_log (`np.ndarray`): -log p of each text in nats, shape (n,), float64.
        num_tokens (`np.ndarray`): tokens scored of each text, shape (n,), int64.
        num_cut (`int`): texts that were longer than `max_tokens`.
    """

    negative_log: np.ndarray
    num_tokens: np.ndarray
    num_cut: int


def perplexity(negative_log: np.ndarray, num_tokens: np.ndarray) -> float:
    """Return the perplexity of texts, each token weighed the same.

    Args:
        negative_log (`np.ndarray`): -log p of each text in nats, shape (n,). Sensitive if the texts are.
        num_tokens (`np.ndarray`): tokens scored of each text, shape (n,).
    Returns:
        `float`: from 1 on. As sensitive as the texts.
    Raises:
        ConfigError: no token was scored, or a likelihood is not finite.
    Examples:
        >>> import numpy as np
        >>> round(perplexity(np.log([4.0, 16.0]), np.array([1, 2])), 6)
        4.0
    """
    if not np.sum(num_tokens) > 0:
        raise ConfigError("no text has a token to score. Pass texts that are not empty.")
    mean = float(np.sum(negative_log) / np.sum(num_tokens))
    if not math.isfinite(mean):
        raise ConfigError("the model gave a likelihood that is not finite. Check the model and its dtype.")
    return math.exp(mean)


def likelihoods(
    texts: Sequence[str],
    model: Any,
    tokenizer: Any,
    *,
    max_tokens: int = 512,
    batch_tokens: int = 2048,
    add_start_token: bool = True,
    public: bool = False,
    what: str = "texts",
) -> Likelihoods:
    """Score texts under a causal language model.

    Texts are sorted by length, filled up on their right to one of a few widths and scored in batches; what fills them
    up comes after every token that is scored, so it moves none.

    Args:
        texts (`Sequence[str]`): texts. Sensitive if they are.
        model (`torch.nn.Module`): a causal model of transformers in evaluation mode.
        tokenizer: its tokenizer.
        max_tokens (`int`): tokens of a text that are scored; fewer where the model's context is shorter.
        batch_tokens (`int`): most tokens of a batch; fewer where their logits would not fit into memory. One text at
            least.
        add_start_token (`bool`): score the first token too, after the start token; False scores from the second on.
        public (`bool`): whether the texts are public or synthetic; else the bar shows a share, not a count.
        what (`str`): the name of the argument, for messages and the progress bar.
    Returns:
        `Likelihoods`: for each text in order; 0 tokens where it has none to score. As sensitive as the texts.
    Raises:
        ConfigError: an argument is out of range, a value is no text, or the model has no start token.
    """
    _check_options(max_tokens, batch_tokens)
    start = _start_token(tokenizer) if add_start_token else []
    limit = max(1, min(max_tokens, context(model) - len(start)))
    rows = check_texts(texts, what)
    # not verbose: a tokenizer's warning of a text beyond the context gives its number of tokens
    encoded: list[list[int]] = tokenizer(rows, add_special_tokens=False, verbose=False)["input_ids"] if rows else []
    kept = [start + tokens[:limit] for tokens in encoded]
    hidden = {} if public else {"bar_format": HIDDEN}
    with progress_bar(total=len(rows), desc=f"Scoring {what}", unit=" texts", **hidden) as bar:
        found, scored = negative_log(kept, model, batch_tokens=batch_tokens, done=bar.update)
    return Likelihoods(found, scored, sum(len(tokens) > limit for tokens in encoded))


def generator_perplexity(
    texts: Sequence[str],
    generator: "str | CausalLM",
    *,
    max_tokens: int = 512,
    batch_tokens: int = 2048,
    public: bool = False,
) -> Result:
    """Return the perplexity of real test text under the model that generates.

    Args:
        texts (`Sequence[str]`): real texts that the generator was not tuned on. Sensitive.
        generator (`str` or `CausalLM`): the model; a name, folder or Hub id is loaded in float32.
        max_tokens (`int`): tokens of a text that are scored.
        batch_tokens (`int`): tokens of a batch.
        public (`bool`): whether the texts are public.
    Returns:
        `dict`: `test_perplexity`, `num_tokens`, `limits` and `uses_private_data`. As sensitive as the texts.
    Raises:
        ConfigError: no text has a token, a value is no text, or an argument is out of range.
        AssetError: the model could not be fetched.
    """
    metric = Perplexity(max_tokens=max_tokens, batch_tokens=batch_tokens)
    model, tokenizer = _loaded(generator)
    value, tokens, limits = metric.measure(texts, model, tokenizer, what="texts", public=public)
    return {"test_perplexity": value, "num_tokens": tokens, "limits": limits, "uses_private_data": not public}


@dataclass(frozen=True, kw_only=True)
class Perplexity(Metric):
    """Perplexity of synthetic text under a given model and, for comparison, that of real text under the same model.

    Args:
        max_tokens (`int`): tokens of a text that are scored.
        batch_tokens (`int`): tokens of a batch.
        add_start_token (`bool`): score the first token too, after the start token of the model.
    """

    name: ClassVar[str] = "perplexity"
    description: ClassVar[str] = "perplexity of synthetic texts under a causal language model, weighed by tokens"
    source: ClassVar[str] = "Jelinek et al. 1977 (J. Acoust. Soc. Am. 62)"
    higher_is_better: ClassVar[bool | None] = None
    needs_references: ClassVar[bool] = False
    max_tokens: int = 512
    batch_tokens: int = 2048
    add_start_token: bool = True

    def __post_init__(self) -> None:
        _check_options(self.max_tokens, self.batch_tokens)

    def compute(
        self,
        *,
        predictions: Sequence[str],
        references: Sequence[str] | None = None,
        model: "str | CausalLM" = "smollm2-135m",
        public_references: bool = False,
    ) -> Result:
        """Score the texts.

        Args:
            predictions (`Sequence[str]`): synthetic texts. Public.
            references (`Sequence[str]`, *optional*): real texts; a synthetic set far below them is duller than they
                are. Sensitive.
            model (`str` or `CausalLM`): a name, folder or Hub id, loaded in float32, or a loaded model as it is.
            public_references (`bool`): whether the references are public.
        Returns:
            `dict`: `perplexity`, `references_perplexity` where there are references, `num_tokens` of the predictions,
            `limits` and `uses_private_data`. As sensitive as the references, as soon as there are any.
        Raises:
            ConfigError: no text of a set has a token, or a value is no text.
            AssetError: the model could not be fetched.
        """
        sets = [("predictions", predictions, True)]
        if references is not None:
            sets.append(("references", references, public_references))
        checked = [(what, check_texts(texts, what), public) for what, texts, public in sets]
        loaded, tokenizer = _loaded(model)
        found = [self.measure(texts, loaded, tokenizer, what=what, public=public) for what, texts, public in checked]
        result: Result = {"perplexity": found[0][0], "num_tokens": found[0][1]}
        if references is not None:
            result["references_perplexity"] = found[1][0]
        result["limits"] = [limit for _, _, limits in found for limit in limits]
        result["uses_private_data"] = references is not None and not public_references
        return result

    def measure(
        self, texts: Sequence[str], model: Any, tokenizer: Any, *, what: str, public: bool
    ) -> tuple[float, int, list[str]]:
        """Return the perplexity of one set, its number of tokens, and what was left out.

        Args:
            texts (`Sequence[str]`): texts. Sensitive unless `public`.
            model (`torch.nn.Module`): a causal model.
            tokenizer: its tokenizer.
            what (`str`): the name of the set.
            public (`bool`): whether the texts are public.
        Raises:
            ConfigError: no text has a token, or a value is no text.
        """
        found = likelihoods(
            texts,
            model,
            tokenizer,
            max_tokens=self.max_tokens,
            batch_tokens=self.batch_tokens,
            add_start_token=self.add_start_token,
            public=public,
            what=what,
        )
        try:
            value = perplexity(found.negative_log, found.num_tokens)
        except ConfigError as error:
            raise ConfigError(f"{what}=: {error}") from None
        limits = []
        missing = int(np.count_nonzero(found.num_tokens == 0))
        if missing:
            limits.append(f"{missing} of {len(texts)} texts of {what} have no token to score and were left out")
        if found.num_cut:
            limits.append(
                f"{found.num_cut} of {len(texts)} texts of {what} were cut at {self.max_tokens} tokens or "
                "the model's context"
            )
        return value, int(found.num_tokens.sum()), limits


def _check_options(max_tokens: int, batch_tokens: int) -> None:
    check_count("max_tokens", max_tokens, 1)
    check_count("batch_tokens", batch_tokens, 1)


def _loaded(model: Any) -> tuple[Any, Any]:
    """Return a torch model and its tokenizer from a name or a `CausalLM`."""
    if isinstance(model, str):
        from hf_dpsynth.models.causal_lm import CausalLM

        model = CausalLM(model, dtype="float32")
    if not callable(getattr(model, "load", None)):
        raise ConfigError(f"model is a {type(model).__name__}; it is a model's name or a CausalLM")
    loaded: tuple[Any, Any] = model.load()
    return loaded


def _start_token(tokenizer: Any) -> list[int]:
    start = start_token(tokenizer)
    if start is None:
        raise ConfigError(
            "the model has no start token. Pass add_start_token=False to score from the second token on."
        )
    return [start]
