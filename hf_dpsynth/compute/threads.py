"""Blocks of rows in as many threads as the BLAS has, each with a product of one thread.

What follows a product (comparing its scores) takes as long as the product and would run in one thread alone. NumPy
lets other threads run during both.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache

from threadpoolctl import ThreadpoolController


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def blas() -> str:
    """Return the BLAS that NumPy's products run on, with its version and threads, as it is loaded here."""
    found = (
        f"{each['internal_api']} {each['version']} ({each.get('architecture')}), {each['num_threads']} threads"
        for each in _controller().info()
        if "numpy" in str(each["filepath"])
    )
    return "; ".join(found) or "unknown"


def in_threads(work: Callable[[slice], None], count: int, block_rows: int) -> None:
    """Do work on all rows, in parts of whole blocks, one for each thread of the BLAS.

    Args:
        work (`Callable[[slice], None]`): does the rows of a part; parts do not meet.
        count (`int`): the number of rows.
        block_rows (`int`): rows in a block; fewer blocks than threads leave threads idle.
    """
    threads = max([1, *(each["num_threads"] for each in _controller().info())])
    blocks = -(-count // block_rows)
    if min(threads, blocks) <= 1:
        work(slice(0, count))
        return
    each = -(-blocks // min(threads, blocks)) * block_rows
    parts = [slice(start, min(start + each, count)) for start in range(0, count, each)]
    with _controller().limit(limits=1), ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(work, parts))


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch use one thread, here and in threads that start meanwhile."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
