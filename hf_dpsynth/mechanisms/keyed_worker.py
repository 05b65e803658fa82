"""A worker of `privatize(num_proc=...)`: reads a slice and a key from its input, writes texts to its output."""

import pickle
import sys

from hf_dpsynth.mechanisms.keyed_release import _privatized
from hf_dpsynth.privacy.keys import Key


def main() -> None:
    """Privatize one slice."""
    mechanism, public, epsilon, secret, offset, texts, batch_size = pickle.load(sys.stdin.buffer)
    made = _privatized(mechanism, public, epsilon, Key(secret), offset, texts, batch_size, silent=True)
    sys.stdout.buffer.write(pickle.dumps(made))


if __name__ == "__main__":
    main()
