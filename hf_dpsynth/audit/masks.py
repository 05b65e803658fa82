"""Mask-token inference: a language model guesses a word's original from the privatized words around it.

Each released word is masked in turn. What its context tells is what a word mechanism does not protect: it draws each
word alone and keeps their order. The same guesses from the original context say what the model can do at best, and
the words that are most frequent in public text, guessed everywhere, what needs no context. Source: Yue et al. 2021,
arXiv:2106.01221; Chen et al. 2023, arXiv:2207.01193.
"""

from collections.abc import Sequence
from itertools import islice

from hf_dpsynth.audit.attacks import AttackResult
from hf_dpsynth.audit.findings import Finding, check_confidence
from hf_dpsynth.audit.pairs import Pair, beside, is_read
from hf_dpsynth.audit.rates import share
from hf_dpsynth.audit.word_guesses import WordGuesser, load_guesser
from hf_dpsynth.audit.words import Source
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import check_count, check_seed
from hf_dpsynth.models.word_vectors import load_vectors
from hf_dpsynth.privacy.keys import public_generator

NAME = "masks"
INFERRED, FROM_ORIGINALS, BY_FREQUENCY = "words_inferred", "words_inferred_from_originals", "words_by_frequency"
_MOST_WORDS = 64  # of a text
_ONE_SIDE = "The model is causal and sees what stands before a word alone; a masked one may infer more."
_ONE_TOKEN = "A guess is one token of the model; words of several are never inferred."
_CONTEXT = "The released word itself is not read; audit_inversion guesses from it."


def audit_masks(
    privatized: Sequence[str | None],
    originals: Sequence[str | None],
    *,
    model: str | WordGuesser = "smollm2-135m",
    vectors: Source = "glove-50d",
    words: int = 2000,
    top: int = 10,
    confidence: float = 0.95,
    seed: int = 0,
) -> AttackResult:
    """Mask words of released texts, and count how often a language model guesses their originals.

    Power: with 2000 words a rate of .02 has an interval of .014 to .027.

    Args:
        privatized (`Sequence[str]`): released texts; None is passed over. Public.
        originals (`Sequence[str]`): what they were made from, at the same places. Sensitive.
        model (`str` or object with `.guess`, defaults to `"smollm2-135m"`): a local masked language model, or a causal
            one, which sees less. Private text is shown to it.
        vectors (`str`, path or `WordVectors`, defaults to `"glove-50d"`): those of the mechanism, whose words are
            guessed at, most frequent first. Public.
        words (`int`, defaults to 2000): how many words to mask at most, of texts drawn in public; at most the first
            64 words of a text are read.
        top (`int`, defaults to 10): how many guesses the second rates allow.
        confidence (`float`, defaults to 0.95): that of each interval alone.
        seed (`int`, defaults to 0): of the draw of texts. Public.
    Returns:
        `AttackResult`: shares of words, each with its Clopper-Pearson interval: `words_inferred`,
        `words_inferred_from_originals` and `words_by_frequency`, each with the rate of `top` guesses behind it, such
        as `words_inferred_top_10`. Sensitive.
    Raises:
        ConfigError: the two lists do not belong together, no word of the originals can be guessed at, the model is an
            address, or an argument is out of range.
    """
    check_confidence(confidence)
    check_seed(seed)
    check_count("words", words, 1)
    check_count("top", top, 1)
    guesser, known = load_guesser(model), load_vectors(vectors).known
    pairs = beside(privatized, originals, known)
    frequent = list(islice((word for word in known if is_read(word, known)), top))
    order = public_generator(seed, "audit-masks").permutation(len(pairs.rows))
    hits: dict[str, list[int]] = {INFERRED: [], FROM_ORIGINALS: [], BY_FREQUENCY: []}
    for row in order:
        pair = _cut(pairs.rows[row])
        places = [place for place, word in enumerate(pair.words) if word in known][: words - len(hits[INFERRED])]
        if places:
            asked = [pair.words[place] for place in places]
            hits[INFERRED] += _ranks(guesser.guess(pair.released, pair.gaps, places, top), asked)
            hits[FROM_ORIGINALS] += _ranks(guesser.guess(pair.words, pair.gaps, places, top), asked)
            hits[BY_FREQUENCY] += _ranks([frequent] * len(places), asked)
        if len(hits[INFERRED]) == words:
            break
    if not hits[INFERRED]:
        raise ConfigError("no word of the originals is in the vocabulary. Pass the vectors= of the mechanism.")
    one_side = (_ONE_SIDE,) if getattr(guesser, "sees_both_sides", True) is False else ()
    by_model = (_CONTEXT, _ONE_TOKEN, *one_side, *pairs.limits)
    findings = [
        found
        for metric, ranks in hits.items()
        for found in _rates(metric, ranks, top, confidence, pairs.limits if metric == BY_FREQUENCY else by_model)
    ]
    return AttackResult(name=NAME, findings=tuple(findings))


def _cut(pair: Pair) -> Pair:
    """Return the first words of a row, with what stands behind them."""
    return Pair(pair.words[:_MOST_WORDS], pair.released[:_MOST_WORDS], pair.gaps[: _MOST_WORDS + 1])


def _ranks(guesses: Sequence[Sequence[str]], asked: Sequence[str]) -> list[int]:
    """Return the place of each word among its guesses, or -1."""
    if len(guesses) != len(asked):
        raise ConfigError(f"model= gave guesses for {len(guesses)} places of {len(asked)}; it gives a list for each")
    return [list(found).index(word) if word in found else -1 for found, word in zip(guesses, asked, strict=True)]


def _rates(metric: str, ranks: Sequence[int], top: int, confidence: float, limits: tuple[str, ...]) -> list[Finding]:
    """Return the rates of the first guess and of `top` guesses."""
    counted = (metric, 1), (f"{metric}_top_{top}", top)
    return [
        share(NAME, name, sum(0 <= rank < most for rank in ranks), len(ranks), confidence, limits)
        for name, most in dict(counted[: 1 + (top > 1)]).items()
    ]
