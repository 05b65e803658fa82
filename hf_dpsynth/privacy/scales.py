"""Losses that add up: scales of metric DP over one metric, and epsilons of local DP of whole texts.

Neither is an epsilon of (epsilon, delta)-DP, so neither enters its accountants.
"""

from collections import Counter

from dp_accounting import DpEvent

from hf_dpsynth.errors import PrivacyError
from hf_dpsynth.privacy.accounting import leaves
from hf_dpsynth.privacy.tokens import TokensDpEvent
from hf_dpsynth.privacy.words import TagResponseDpEvent, WordDpEvent


def scales(event: DpEvent) -> Counter[float]:
    """Return how often each text is released at each scale of a metric, or at each epsilon of local DP.

    The response of tags is counted in the metric of the word's own event, beside which it stands.

    Raises:
        PrivacyError: an event has no scale, or there are several kinds.
    """
    found: Counter[float] = Counter()
    kinds = set()
    for leaf, count in leaves(event).items():
        if isinstance(leaf, TagResponseDpEvent):
            continue
        if not isinstance(leaf, (WordDpEvent, TokensDpEvent)):
            raise PrivacyError(f"{type(leaf).__name__} has no scale; such charges have ledgers of their own.")
        kinds.add(isinstance(leaf, WordDpEvent))
        found[leaf.epsilon if isinstance(leaf, WordDpEvent) else leaf.epsilon * leaf.tokens] += count
    if len(kinds) > 1:
        raise PrivacyError("scales of words and epsilons of whole texts do not add up.")
    return found


def metric_scale(event: DpEvent) -> float:
    """Return the sum over an event's releases: repeated release of one text composes by addition.

    Raises:
        PrivacyError: an event has no scale.
    """
    return float(sum(scale * count for scale, count in scales(event).items()))
