"""Clusters of public rows: what stands for private rows near them, so that a vote costs clusters, not records.

Only public rows are read. Which cluster each is in is written down, because products of matrices round differently on
other machines. Source: Wang et al. 2025, arXiv:2510.10990; where we leave it: clusters are made label by label.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from hf_dpsynth.compute.kmeans import kmeans, with_ones
from hf_dpsynth.compute.unit_rows import unit_rows
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.base import largest_remainder, texts_by_label
from hf_dpsynth.plans import Label
from hf_dpsynth.privacy.keys import public_generator
from hf_dpsynth.store import Store

_NAME = "public-clusters"


class Clusters(NamedTuple):
    """Public clusters by label.

    Args:
        centres (`list[np.ndarray]`): by label, shape (k_l, d), float32, of norm 1. Public.
        sizes (`list[np.ndarray]`): how many distinct public texts are in each, shape (k_l,). Public.
        about (`dict[str, str]`): digests of the public rows and of who is in which cluster.
    """

    centres: list[np.ndarray]
    sizes: list[np.ndarray]
    about: dict[str, str]


def distinct_texts(rows: Sequence[tuple[Label, str]], labels: Sequence[Label], clusters: int) -> list[list[str]]:
    """Return the distinct public texts of each label.

    Args:
        rows (`Sequence[tuple[Label, str]]`): public rows.
        labels (`Sequence[tuple]`): the declared labels.
        clusters (`int`): how many clusters there shall be.
    Raises:
        ConfigError: no public rows, a label without any, or too few for so many clusters.
    """
    texts = texts_by_label(rows, labels)
    if not rows:
        raise ConfigError("sec-pe needs public=: rows like the private ones, of which it makes clusters.")
    empty = [label for label, own in zip(labels, texts, strict=True) if not own]
    if empty:
        raise ConfigError(f"public= has no row of the label {empty[0]}; sec-pe needs public rows of every label.")
    number = sum(map(len, texts))
    if not len(labels) <= clusters <= number:
        raise ConfigError(
            f"clusters is {clusters}; it must be at least the number of labels, {len(labels)}, and at most the number "
            f"of distinct public texts, {number}. Pass more public rows, or other clusters."
        )
    return texts


def clustered(
    texts: Sequence[Sequence[str]], total: int, embed: Callable[[list[str]], np.ndarray], store: Store, seed: int
) -> Clusters:
    """Cluster public texts label by label, or read who is in which cluster.

    Args:
        texts (`Sequence[Sequence[str]]`): distinct texts by label. Public.
        total (`int`): clusters of all labels, shared out by how many texts they have; at least one each.
        embed (`Callable`): embeds public texts.
        store (`Store`): the run directory.
        seed (`int`): of the public streams.
    """
    counts = [len(own) for own in texts]
    parts = [1 + part for part in largest_remainder(total - len(counts), [count - 1 for count in counts])]
    parts = [min(part, count) for part, count in zip(parts, counts, strict=True)]
    rows = unit_rows(embed([text for own in texts for text in own]))
    groups = np.split(rows, np.cumsum(counts)[:-1])

    def make(start: int, stop: int) -> list[str]:
        found = []
        for number, (group, part) in enumerate(zip(groups, parts, strict=True)):
            stream = public_generator(seed, "public clusters", number)
            found += kmeans(with_ones(group - group.mean(axis=0)), part, stream).tolist()
        return [str(cluster) for cluster in found[start:stop]]

    members = np.asarray([int(text) for text in store.grow(_NAME, len(rows), len(rows), make)], dtype=np.int64)
    centres, sizes = [], []
    for group, own in zip(groups, np.split(members, np.cumsum(counts)[:-1]), strict=True):
        _, cluster, size = np.unique(own, return_inverse=True, return_counts=True)
        sums = np.zeros((len(size), group.shape[1]))
        np.add.at(sums, cluster, group.astype(np.float64))
        centres.append(unit_rows(sums))
        sizes.append(size.astype(np.float64))
    content = json.dumps([list(own) for own in texts]).encode()
    about = {"public": hashlib.sha256(content).hexdigest(), "clusters": store.digest(_NAME)}
    return Clusters(centres, sizes, about)
