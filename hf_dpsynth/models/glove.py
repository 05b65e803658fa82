"""GloVe text becomes a matrix and a list of words, which load without being parsed again."""

from pathlib import Path

import numpy as np

from hf_dpsynth.errors import AssetError, ConfigError


def convert_glove(folder: Path, filename: str) -> None:
    """Replace a text of word vectors by `vectors.npy` and `vectors.txt`, which `load_vectors` reads.

    Entries with white space in them ("at name@domain.com") are left out: a text is read as words between white space,
    so they never are a word of one, and a released one would look like two.

    Args:
        folder (`Path`): holds the text and receives the files.
        filename (`str`): the name of the text.
    Raises:
        AssetError: the text cannot be read as word vectors.
    """
    from hf_dpsynth.models.word_vectors import load_vectors

    try:
        found = load_vectors(folder / filename, max_words=10**7)
    except ConfigError as error:
        raise AssetError(f"{filename} could not be converted: {error}") from error
    kept = [row for row, word in enumerate(found.words) if not any(sign.isspace() for sign in word)]
    np.save(folder / "vectors.npy", found.vectors[kept])
    (folder / "vectors.txt").write_text("".join(f"{found.words[row]}\n" for row in kept), encoding="utf-8")
    (folder / filename).unlink()
