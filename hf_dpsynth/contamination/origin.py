"""Whether a public corpus was chosen by what private texts hold, as the corpus itself says.

What `find_overlaps` leaves of a corpus depends on the private texts, so a release that is made with it needs an
assumption that fails. The mark stands in the description of the data set, in fixed words: `datasets` copies it to what
is selected, filtered, mapped, joined or saved to disk, and no list or table file keeps it.
"""

from typing import Any

from hf_dpsynth.guarantees import FALSE

ASSUMPTION = f"public corpus chosen independently of the private data{FALSE}"


def marked(corpus: Any) -> Any:
    """Return a corpus whose description says that it depends on private texts.

    Args:
        corpus (`Dataset` or `IterableDataset`): a fresh object, which is changed in place.
    """
    corpus.info.description = ASSUMPTION
    return corpus


def assumed(public: Any) -> tuple[str, ...]:
    """Return what a guarantee must say of where public rows come from: nothing, or the assumption that fails.

    Args:
        public (`Dataset`, `Sequence[str]` or None): what is passed as `public=`. Public.
    Returns:
        `tuple[str, ...]`: sentences for the guarantee.
    Examples:
        >>> from datasets import Dataset
        >>> corpus = Dataset.from_dict({"text": ["a", "b"]})
        >>> assumed(corpus), assumed(marked(corpus).select([0]))
        ((), ('public corpus chosen independently of the private data: false',))
    """
    described = getattr(getattr(public, "info", None), "description", None)
    return (ASSUMPTION,) if ASSUMPTION in (described or "") else ()
