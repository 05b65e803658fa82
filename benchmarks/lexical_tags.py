"""The shipped table of lexical tags: made again with the embedded tagger, compared, and written on request.

python -m benchmarks.lexical_tags [--write]
"""

import argparse
import gzip
import pathlib
import time
from collections import Counter

from hf_dpsynth.models import lexicon
from hf_dpsynth.models.tags import TAGS
from hf_dpsynth.models.word_vectors import load_vectors


def packed(words, codes):
    """Return the table's bytes: the same content always gives the same lines."""
    lines = [
        " ".join((tag, *(word for word, code in zip(words, codes, strict=True) if TAGS[code] == tag))) for tag in TAGS
    ]
    return gzip.compress("\n".join(lines).encode("utf-8"), compresslevel=9, mtime=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="replace the shipped table")
    options = parser.parse_args()
    words = load_vectors("glove-50d").words
    assert not any(set(word) & set(" \n") for word in words)
    start = time.perf_counter()
    codes = lexicon.tag_alone(words)
    seconds = time.perf_counter() - start
    print(f"{len(words)} words in {seconds:.0f} s, {len(words) / seconds:.0f} words/s")
    print(", ".join(f"{tag} {count}" for tag, count in Counter(TAGS[code] for code in codes).most_common()))
    path = pathlib.Path(lexicon.__file__).with_name(lexicon.TABLE)
    if options.write:
        path.write_bytes(packed(words, codes))
        print(f"{path.name}: {path.stat().st_size} bytes")
    else:
        print(f"{(codes != lexicon.lexical_tags(words)).sum()} differ from the shipped table")


if __name__ == "__main__":
    main()
