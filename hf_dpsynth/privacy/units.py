"""Privacy units of several records: which records count, what a unit adds to a sum, and which label it stands for.

A unit is a user, or a record alone. What it contributes is a function of its own records, secret randomness and public
inputs: the mean of the gradients of the records that a cap keeps, which `sgd.ClippedSum` clips as a whole, and one
count of one label. Adding, removing or zeroing a unit then moves a sum by at most what one record could, however many
records it has. Changing some records of a unit can move a sum by twice as much: that is another relation.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hf_dpsynth.errors import PrivacyError
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.records import PrivateRecords, PrivateTexts

if TYPE_CHECKING:
    import torch

_COUPLED = "gradients are not one for each record: this model couples the records of a batch"


def capped(units: Sequence[Sequence[Any]], most: int, key: Key) -> list[PrivateTexts]:
    """Keep at most so many records of each unit, drawn in secret: every set of that size is equally likely.

    Args:
        units (`Sequence[Sequence]`): the records of each unit. Sensitive.
        most (`int`): the largest number of records that a unit keeps. Public.
        key (`Key`): secret randomness of this process start.
    Returns:
        `list[PrivateTexts]`: as many units, each with its kept records in their order. Sensitive.
    """
    generator = key.generator("kept records")
    kept = []
    for records in units:
        if len(records) > most:
            places = sorted(generator.permutation(len(records))[:most].tolist())
            records = [records[place] for place in places]
        kept.append(PrivateTexts(records))
    return kept


def label_counts(private: PrivateRecords, labels: Sequence[tuple[Any, ...]], key: Key) -> list[int]:
    """Count the units of each declared label: each stands for the label of one of its records, drawn in secret.

    Args:
        private (`PrivateRecords`): the records. Sensitive.
        labels (`Sequence[tuple]`): the declared labels.
        key (`Key`): secret randomness of this process start.
    Returns:
        `list[int]`: units by declared label. Sensitive: add noise before use.
    Sensitivity:
        L1 <= 1 under add-remove and zero-out of a unit, whatever the number of its records; two counts move by 1 under
        replace-one.
    """
    counts = [0] * len(labels)
    for ((label, _),) in capped(private.by_unit(labels), 1, key.derive("label of a unit")):
        counts[label] += 1
    return counts


def unit_means(
    gradients: Iterable[Sequence["torch.Tensor"]], sizes: Sequence[int]
) -> Iterator[Sequence["torch.Tensor"]]:
    """Average the gradients of each unit's records, in the memory of one unit and one micro-batch.

    A mean is not finite where one of its gradients is not, so that the unit counts as zero once it is clipped. Sums of
    other units never mix with it.

    Args:
        gradients (`Iterable[Sequence[torch.Tensor]]`): micro-batches of gradients of the records, unit after unit, for
            each parameter of shape (b, *shape). A unit may reach over several of them. Sensitive.
        sizes (`Sequence[int]`): the number of records of each unit, at least 1. Sensitive.
    Yields:
        for each parameter the means of the next units, of shape (units, *shape), float32. Sensitive.
    Raises:
        PrivacyError: there are not as many gradients as records.
    """
    unit, left, rest = 0, 0, sum(sizes)
    held: list[torch.Tensor] = []
    for part in gradients:
        start, count = 0, len(part[0])
        rest -= count
        if rest < 0 or any(len(gradient) != count for gradient in part):
            raise PrivacyError(_COUPLED)
        if not left and all(size == 1 for size in sizes[unit : unit + count]):
            unit += count
            yield part
            continue
        rows = [gradient.detach().float() for gradient in part]
        while start < count:
            fresh, left = not left, left or sizes[unit]
            stop = min(start + left, count)
            sums = [row[start:stop].sum(0, keepdim=True) for row in rows]
            held = sums if fresh else [before + more for before, more in zip(held, sums, strict=True)]
            left, start = left - (stop - start), stop
            if not left:
                yield [total / sizes[unit] for total in held]
                unit += 1
    if rest:
        raise PrivacyError(_COUPLED)
