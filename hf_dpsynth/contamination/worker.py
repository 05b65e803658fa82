"""A worker of `find_overlaps(num_proc=...)`: reads an index and batches from its input, writes what it found."""

import pickle
import sys

from hf_dpsynth.contamination.index import PrivateIndex
from hf_dpsynth.contamination.scanning import scan


def main() -> None:
    """Search batches until there are no more."""
    source, target = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what a package prints is no answer
    vocabulary, finders, cut = pickle.load(source)
    index = PrivateIndex.of(vocabulary, finders)
    while True:
        try:
            batch = pickle.load(source)
        except EOFError:
            return
        pickle.dump(scan(index, batch, cut=cut), target, protocol=pickle.HIGHEST_PROTOCOL)
        target.flush()


if __name__ == "__main__":
    main()
