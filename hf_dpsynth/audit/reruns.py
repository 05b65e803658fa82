"""Runs with and without one record, through whatever makes the released texts: scores for `multi_run`."""

from collections.abc import Callable, Sequence

import numpy as np

from hf_dpsynth.audit.signals import NGRAM, Reading, named, released, scores_of
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import check_count
from hf_dpsynth.models.base import Embedder

Make = Callable[[str | None, int], Sequence[str]]


def repeat_runs(
    make: Make,
    canary: str,
    runs: int,
    *,
    signal: str = NGRAM,
    embedder: str | Embedder = "minilm",
    neighbours: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Run a mechanism without and with one record, and score that record on what each run released.

    The scores go to `multi_run`, whose bound holds for any mechanism. Each run must draw noise of its own; what is
    public, the seed of a generator for instance, may be the same in all or follow the number of the run, but must not
    differ between the two sides. The number of rows that are asked for, and the declared number of records, must be
    the same on both sides too.

    Args:
        make (`Callable`): `make(record, number)` runs the mechanism on the data, with `record` among them unless it is
            None, and returns the released texts. `number` counts the runs of a side from 0.
        canary (`str`): the text of the record. Sensitive if it is.
        runs (`int`): how many on each side. n runs show an epsilon of ln n or so at most.
        signal (`str`, defaults to `"ngram"`): as for `audit_canaries`, one of them.
        embedder (`str` or object with `.embed`, defaults to `"minilm"`): for `"nearest"`.
        neighbours (`int`, defaults to 1): how many nearest texts are averaged.
    Returns:
        `tuple[np.ndarray, np.ndarray]`: scores of the runs without and with the record, shape (runs,) each. Sensitive.
    Raises:
        ConfigError: the record is no text, a run released none, or an argument is out of range.
    Examples:
        >>> from hf_dpsynth.audit import multi_run, repeat_runs
        >>> def leaks(record, number):
        ...     return ["a good film", record or "a dull plot"]
        >>> without, present = repeat_runs(leaks, "zebra quartz", 40)
        >>> round(multi_run(without, present, delta=1e-5, confidence=0.95).epsilon_lower, 2)
        1.6
    """
    check_count("runs", runs, 1)
    if not isinstance(canary, str) or not canary.strip():
        raise ConfigError(f"canary is of type {type(canary).__name__} or blank; pass the text of one record")
    if len(named(signal)) > 1:
        raise ConfigError(f"signal is {signal!r}; multi_run takes one score a run, so pass one signal")
    reading = Reading(neighbours=neighbours, calibrated=False)
    sides: list[np.ndarray] = []
    for record in (None, canary):
        found = np.empty(runs)
        for number in range(runs):
            rows = released(make(record, number))
            found[number] = scores_of(signal, rows, [canary], reading=reading, embedder=embedder)[0]
        sides.append(found)
    return sides[0], sides[1]
