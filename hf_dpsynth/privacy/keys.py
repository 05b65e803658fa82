"""Keys and streams: secret randomness from the operating system, public randomness from the user's seed.

Secret streams: a 256-bit key from the OS, BLAKE2b with length-prefixed labels, an AES-128 counter generator. A key
lives in memory, is never written, and each process start draws a fresh one: a counter that is used twice subtracts to
a clean difference. Public streams come from `seed=` and drive only prompts and post-processing.
"""

import hashlib
import hmac
import os
from collections.abc import Iterable
from typing import NoReturn

import numpy as np
from randomgen import AESCounter

from hf_dpsynth.errors import PrivacyError

Label = str | int | bytes


def _encode(labels: tuple[Label, ...]) -> bytes:
    """Length-prefix the labels so that no two different tuples share an encoding."""
    parts = []
    for label in labels:
        kind, raw = (
            (b"b", label) if isinstance(label, bytes) else (type(label).__name__[:1].encode(), str(label).encode())
        )
        parts.append(kind + len(raw).to_bytes(8, "big") + raw)
    return b"".join(parts)


class Key:
    """A secret 256-bit key that derives sub-keys and generators and cannot be printed or pickled.

    Args:
        secret (`bytes`, *optional*): 32 bytes; drawn from the operating system when missing.
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = os.urandom(32) if secret is None else secret
        if len(self._secret) != 32:
            raise PrivacyError(f"a key has 32 bytes, this one has {len(self._secret)}")

    @classmethod
    def from_insecure_seed(cls, seed: int) -> "Key":
        """Make a key that anybody can make again: for tests of our own samplers only."""
        return cls(hashlib.blake2b(_encode(("insecure", seed)), digest_size=32).digest())

    def derive(self, *labels: Label) -> "Key":
        """Return the sub-key of these labels."""
        return Key(hashlib.blake2b(_encode(labels), key=self._secret, digest_size=32).digest())

    def generator(self, *labels: Label) -> np.random.Generator:
        """Return an AES-counter generator of these labels. Sensitive: its draws are as secret as noise."""
        digest = hashlib.blake2b(_encode(labels), key=self._secret, digest_size=16).digest()
        return np.random.Generator(AESCounter(key=int.from_bytes(digest, "big")))

    def commit(self, chunks: Iterable[bytes]) -> str:
        """Return the HMAC-SHA256 of length-prefixed chunks, as hexadecimal text."""
        mac = hmac.new(self._secret, digestmod=hashlib.sha256)
        for chunk in chunks:
            mac.update(len(chunk).to_bytes(8, "big"))
            mac.update(chunk)
        return mac.hexdigest()

    def __repr__(self) -> str:
        return "Key(<secret>)"

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("a key cannot be pickled; derive a sub-key and send its secret over a pipe on purpose")

    def reveal(self) -> bytes:
        """Return the 32 secret bytes, for a key file with mode 0600 or a pipe to a worker. Sensitive."""
        return self._secret


def public_seed(seed: int, *labels: Label) -> int:
    """Derive a 31-bit seed of a named public stream from the user's seed. Public."""
    return int.from_bytes(hashlib.blake2b(_encode(("public", seed, *labels)), digest_size=4).digest(), "big") >> 1


def public_generator(seed: int, *labels: Label) -> np.random.Generator:
    """Return the generator of a named public stream: prompts, populations, post-processing. Public."""
    digest = hashlib.blake2b(_encode(("public", seed, *labels)), digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))
