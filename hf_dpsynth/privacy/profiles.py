"""The privacy profile of an event: its delta at each epsilon, by the accountant that states its claim."""

from dp_accounting import DpEvent, NonPrivateDpEvent

from hf_dpsynth.privacy.accounting import composed, extra_delta, leaves, rdp_accountant


def profile(
    event: DpEvent,
    epsilons: tuple[float, ...],
    *,
    adjacency: str = "add-remove",
    account: str = "pld",
    discretisation: float = 1e-4,
) -> tuple[float, ...]:
    """Return the delta of an event at each of several epsilons; pessimistic.

    Args:
        event (`DpEvent`): the full event tree.
        epsilons (`tuple[float, ...]`): privacy losses.
        adjacency (`str`, defaults to `"add-remove"`): the neighbouring relation.
        account (`str`, defaults to `"pld"`): `"pld"`, `"rdp"` or `"zcdp"`.
        discretisation (`float`, defaults to `1e-4`): the interval of the loss, of `"pld"`.
    Returns:
        `tuple[float, ...]`: a delta for each epsilon.
    Raises:
        PrivacyError: an event cannot be accounted so under this relation.
    """
    counts = leaves(event)
    if not counts:
        return tuple(0.0 for _ in epsilons)
    if any(isinstance(leaf, NonPrivateDpEvent) for leaf in counts):
        return tuple(1.0 for _ in epsilons)
    if account == "pld":
        _, delta_at = composed(frozenset(counts.items()), adjacency, discretisation)
        return tuple(min(1.0, float(delta)) for delta in delta_at(list(epsilons)))
    extra, accountant = extra_delta(event), rdp_accountant(counts, adjacency)
    return tuple(min(1.0, extra + float(accountant.get_delta(value))) for value in epsilons)
