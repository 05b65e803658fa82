"""Inversion of word mechanisms: guesses at the word that was there before the one that was released.

Two attackers. One knows the embedding: it guesses the words nearest to the released word, which itself comes first.
The other knows the mechanism's law and how frequent words are in public text: it rehearses the mechanism on public
words, and guesses by Bayes' rule the word that most likely became the released one. Only words of the vocabulary W
are guessed at; what the mechanism copies is counted apart. Sources: Song & Raghunathan 2020, arXiv:2004.00053; Arnold
et al. 2023, arXiv:2306.01471.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hf_dpsynth import registry
from hf_dpsynth.audit.attacks import AttackResult
from hf_dpsynth.audit.findings import check_confidence
from hf_dpsynth.audit.pairs import Pairs, beside
from hf_dpsynth.audit.rates import share
from hf_dpsynth.audit.rehearsal import frequencies, rehearse
from hf_dpsynth.audit.words import Source
from hf_dpsynth.compute import nearest
from hf_dpsynth.compute.candidates import Candidates
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word.base import WordMechanism
from hf_dpsynth.mechanisms.word.stop_words import STOP_WORDS
from hf_dpsynth.metrics.base import check_count, check_seed
from hf_dpsynth.models.word_vectors import WordVectors, load_vectors
from hf_dpsynth.privacy.words import checked

NAME = "inversion"
UNCHANGED, RECOVERED, BY_FREQUENCY, IN_CLEAR = (
    "words_unchanged",
    "words_recovered",
    "words_by_frequency",
    "words_in_clear",
)
_NO_LAW = "The attacker knows the embedding and not the mechanism; with mechanism= and epsilon= it may recover more."
_LAW = (
    "The attacker rehearses the {name} mechanism on {words} words, {draws} times each. One with other frequencies of "
    "words may recover more, and where these are far off, less than by the released word itself."
)
_ALONE = "Each word is guessed from its own substitute alone; what its neighbours tell is audit_masks' matter."
_CLEAR = (
    "Words that the vocabulary lacks and that came out as they were, and words that are copied by rule; marks and "
)
_CLEAR += "the number of words are public by assumption and not counted."


def audit_inversion(
    privatized: Sequence[str | None],
    originals: Sequence[str | None],
    *,
    vectors: Source = "glove-50d",
    mechanism: str | WordMechanism | None = None,
    epsilon: float | None = None,
    params: Mapping[str, Any] | None = None,
    public: Sequence[str] = (),
    top: int = 10,
    candidates: int = 1000,
    draws: int = 50,
    confidence: float = 0.95,
    seed: int = 0,
) -> AttackResult:
    """Guess the original of each released word, and count how often that is right.

    Without a mechanism `words_recovered` is the guess of the nearest word, which is the released word itself unless
    another word has the same vector. With one it is Bayes' guess. The word that is most frequent in public text,
    guessed everywhere, is the rate of an attacker who reads no released text.

    Args:
        privatized (`Sequence[str]`): released texts; None is passed over. Public.
        originals (`Sequence[str]`): what they were made from, at the same places. Sensitive.
        vectors (`str`, path or `WordVectors`, defaults to `"glove-50d"`): those of the mechanism. Public.
        mechanism (`str` or an instance, *optional*): the word mechanism that made the texts, for Bayes' guess.
        epsilon (`float`, *optional*): its scale.
        params (`Mapping`, *optional*): fields of the mechanism, with its name.
        public (`Sequence[str]`): texts of the same kind, which say how frequent words are; by rank in the vectors when
            missing. Never the originals. Public.
        top (`int`, defaults to 10): how many guesses the second rate allows.
        candidates (`int`, defaults to 1000): how many frequent words, and how many of the released ones, are
            rehearsed. Time grows with it.
        draws (`int`, defaults to 50): rehearsals of each, at least 2.
        confidence (`float`, defaults to 0.95): that of each interval alone.
        seed (`int`, defaults to 0): of the rehearsal. Public.
    Returns:
        `AttackResult`: shares of words, each with its Clopper-Pearson interval: `words_unchanged`, `words_recovered`,
        `words_recovered_top_10` (by `top`) and `words_by_frequency` of the words of W that were not copied by rule,
        `words_in_clear` of all words. Sensitive.
    Raises:
        ConfigError: the two lists do not belong together, no word of the originals can be guessed at, the mechanism
            replaces no words, or an argument is out of range.
    Examples:
        >>> import numpy as np
        >>> from hf_dpsynth.audit import audit_inversion
        >>> from hf_dpsynth.models.word_vectors import WordVectors
        >>> line = WordVectors(("good", "bad", "fun", "film"), np.array([[-5.0], [0.0], [1.0], [6.0]]), "line")
        >>> found = audit_inversion(["bad film", "fun bad"], ["fun film", "fun zq"], vectors=line, top=2)
        >>> [(one.metric, round(one.value, 2), one.n) for one in found.findings][:3]
        [('words_unchanged', 0.67, 3), ('words_recovered', 0.67, 3), ('words_recovered_top_2', 1.0, 3)]
    """
    check_confidence(confidence)
    check_seed(seed)
    for name, count, least in (("top", top, 1), ("candidates", candidates, 1), ("draws", draws, 2)):
        check_count(name, count, least)
    law = _law(mechanism, epsilon, params)
    loaded = load_vectors(vectors)
    loaded = loaded if law is None else loaded.most_frequent(law.max_words)
    pairs = beside(privatized, originals, loaded.known)
    before, after, copied, total = _codes(pairs, loaded, law)
    if not len(before):
        raise ConfigError(
            f"no word of the originals is guessed at: {loaded.id} has none of them, or all are copied by rule. Pass "
            "the vectors= of the mechanism."
        )
    seen, times = np.unique(after[after >= 0], return_counts=True)
    guesses, prior = _nearest(seen, loaded, top), frequencies(loaded, public)
    said: tuple[str, ...] = (_NO_LAW, _ALONE)
    if law is not None and epsilon is not None:
        tried = rehearse(
            seen, times, loaded, law, checked(epsilon), prior, candidates=candidates, draws=draws, seed=seed
        )
        guesses = tried.guesses(seen, guesses)
        said = (_LAW.format(name=law.name, words=len(tried.words), draws=draws), _ALONE)
    hits = _hits(before, after, seen, guesses)
    counted = (
        (UNCHANGED, before == after, pairs.limits),
        (RECOVERED, hits[:, 0], (*said, *pairs.limits)),
        (f"{RECOVERED}_top_{top}", hits.any(axis=1), (*said, *pairs.limits)),
        (BY_FREQUENCY, before == prior.argmax(), pairs.limits),
    )
    findings = [share(NAME, metric, int(told.sum()), len(before), confidence, more) for metric, told, more in counted]
    findings.append(share(NAME, IN_CLEAR, copied, total, confidence, (_CLEAR, *pairs.limits)))
    return AttackResult(name=NAME, findings=tuple(findings))


def _law(mechanism: Any, epsilon: float | None, params: Mapping[str, Any] | None) -> WordMechanism | None:
    if (mechanism is None) != (epsilon is None) or (mechanism is None and params is not None):
        raise ConfigError("a law is mechanism= and epsilon= together, and params= with a name; pass both, or neither")
    if mechanism is None:
        return None
    found = registry.resolve(mechanism, None if params is None else dict(params), "privatize")
    if not isinstance(found, WordMechanism):
        raise ConfigError(
            f"{getattr(found, 'name', type(found).__name__)} is no mechanism that replaces words one by one. Pass one "
            "of those that hf_dpsynth.list_mechanisms() calls metric DP per word, or no mechanism=."
        )
    return found


def _codes(pairs: Pairs, vectors: WordVectors, law: WordMechanism | None) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Return the rows in W of originals that are guessed at and of what came out (or -1), words in clear, and words.

    What is copied by rule is not guessed at: there is nothing to guess.
    """
    kept = STOP_WORDS if law is not None and law.stop_words == "keep" else frozenset()
    known = vectors.known
    before: list[int] = []
    after: list[int] = []
    clear = total = 0
    for pair in pairs.rows:
        total += len(pair.words)
        for word, new in zip(pair.words, pair.released, strict=True):
            if word in known and word not in kept:
                before.append(known[word])
                after.append(known.get(new, -1))
            else:
                clear += word == new
    return np.array(before, dtype=np.int64), np.array(after, dtype=np.int64), clear, total


def _nearest(seen: np.ndarray, vectors: WordVectors, top: int) -> np.ndarray:
    """Return the words nearest to each released one, shape (n, k), k no more than there are."""
    return nearest.top_k_indices(vectors.vectors[seen], Candidates(vectors.vectors), min(top, len(vectors)))


def _hits(before: np.ndarray, after: np.ndarray, seen: np.ndarray, guesses: np.ndarray) -> np.ndarray:
    """Return whether each guess at each word is right, shape (words, k); what W lacks is not guessed at."""
    found = np.zeros((len(before), guesses.shape[1]), dtype=bool)
    known = np.flatnonzero(after >= 0)
    found[known] = guesses[np.searchsorted(seen, after[known])] == before[known, None]
    return found
