"""How much of a text an inverter brings back: words in common, n-grams in order, and the cosine of the vectors.

BLEU is that of a corpus: clipped matches and lengths of all texts are added before anything is divided; there is no
smoothing. Source: Papineni et al. 2002; token F1 as in Morris et al. 2023, arXiv:2310.06816.
"""

from collections import Counter
from collections.abc import Sequence
from math import exp, log

import numpy as np

from hf_dpsynth.compute.unit_rows import unit_rows
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.words import ngrams, words
from hf_dpsynth.models.base import Embedder, Inverter

_ORDERS = 4


def token_f1(prediction: str, reference: str) -> float:
    """Return the F1 of the words of two texts, in any order; copies count, and two texts without words agree.

    Args:
        prediction (`str`): a text. Sensitive if it is.
        reference (`str`): a text. Sensitive if it is.
    Returns:
        `float`: in [0, 1].
    Examples:
        >>> token_f1("the cat sat", "the cat")
        0.8
    """
    said, wanted = Counter(words(prediction)), Counter(words(reference))
    total = said.total() + wanted.total()
    return 2 * (said & wanted).total() / total if total else 1.0


def corpus_bleu(predictions: Sequence[str], references: Sequence[str]) -> float:
    """Return the BLEU of texts against one reference each, with n-grams up to 4.

    Args:
        predictions (`Sequence[str]`): texts. Sensitive if they are.
        references (`Sequence[str]`): as many texts. Sensitive if they are.
    Returns:
        `float`: in [0, 1]; 0 where an order has no match at all.
    Raises:
        ConfigError: there are not as many texts on both sides.
    """
    if len(predictions) != len(references):
        raise ConfigError(f"there are {len(predictions)} predictions and {len(references)} references; pair them")
    pairs = [(words(said), words(wanted)) for said, wanted in zip(predictions, references, strict=True)]
    logs = 0.0
    for n in range(1, _ORDERS + 1):
        counts = [(Counter(ngrams(said, n)), Counter(ngrams(wanted, n))) for said, wanted in pairs]
        matches = sum((said & wanted).total() for said, wanted in counts)
        if not matches:
            return 0.0
        logs += log(matches / sum(said.total() for said, _ in counts)) / _ORDERS
    length, wanted_length = (sum(len(pair[side]) for pair in pairs) for side in (0, 1))
    return exp(logs + min(0.0, 1 - wanted_length / length))


def evaluate_inverter(
    inverter: Inverter, texts: Sequence[str], *, embedder: Embedder, seed: int = 0
) -> dict[str, float]:
    """Embed public texts, invert their vectors and compare.

    Args:
        inverter (`Inverter`): for the vectors of this embedder.
        texts (`Sequence[str]`): texts that it was not trained on. Public.
        embedder (`Embedder`): makes the vectors.
        seed (`int`): the seed of the inverter's public streams.
    Returns:
        `dict`: `token_f1` (mean), `cosine` (mean, of the vectors of a text and of what came back), `bleu`, `exact`
        (share of texts that came back word for word) and `num_texts`; of two or more texts also `token_f1_chance` and
        `cosine_chance`, of another of the texts in place of what came back.
    Raises:
        ConfigError: there is no text.
    """
    if not len(texts):
        raise ConfigError("there is no text to evaluate an inverter on; pass public texts that it did not see")
    wanted = unit_rows(embedder.embed(texts))
    said = inverter.invert(wanted, seed=seed)
    scores = {
        "token_f1": _mean_f1(said, texts),
        "cosine": _mean_cosine(embedder.embed(said), wanted),
        "bleu": corpus_bleu(said, texts),
        "exact": float(np.mean([words(one) == words(other) for one, other in zip(said, texts, strict=True)])),
        "num_texts": float(len(texts)),
    }
    if len(texts) > 1:
        scores["token_f1_chance"] = _mean_f1([*texts[1:], texts[0]], texts)
        scores["cosine_chance"] = _mean_cosine(np.roll(wanted, -1, axis=0), wanted)
    return scores


def _mean_f1(said: Sequence[str], wanted: Sequence[str]) -> float:
    return float(np.mean([token_f1(one, other) for one, other in zip(said, wanted, strict=True)]))


def _mean_cosine(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.mean(np.sum(unit_rows(found) * wanted, axis=1)))
