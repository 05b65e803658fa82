"""Part-of-speech tags from spaCy, loaded from a folder of the catalogue, with only the parts that tagging needs.

Texts are tagged one at a time, so a text's tags are a function of that text alone: matrix products over several texts
need not round alike. Long texts are cut at public lengths, so time and memory are linear. The strings of a call are
forgotten by spaCy at its end.
"""

import re
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.models.catalog import model_id, pull
from hf_dpsynth.models.tags import tag_codes

_TAGGING = ("tagger", "morphologizer")
PIECE_TOKENS = 1024
# spaCy's tokenizer takes time that grows as the square of a run without spaces.
RUNS = re.compile(r"\s+|\S{1,64}\s*")


class SpacyPipeline:
    """A spaCy pipeline that is loaded at its first use, with the components that are wanted alone.

    Args:
        model (`str`): a short name of the catalogue or the local folder of a spaCy pipeline.
    """

    pipes: ClassVar[tuple[str, ...]]
    """The components that stay."""
    doing: ClassVar[tuple[str, tuple[str, ...]]]
    """What it is for, and the components of which it needs one."""

    def __init__(self, model: str = "en-core-web-sm") -> None:
        self.model = model
        self._pipeline: Any = None

    @property
    def id(self) -> str:
        """Return the public name of the model."""
        return model_id(self.model)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    def _spacy(self) -> Any:
        return need("spacy", extra="tagger", what=type(self).__name__)

    def _load(self) -> Any:
        """Load the pipeline at the first use."""
        if self._pipeline is None:
            spacy = self._spacy()
            try:
                pipeline = spacy.load(pull(self.model))
            except (OSError, ValueError) as error:
                raise AssetError(f"{self.model} does not load as a spaCy pipeline: {error}") from error
            for name in pipeline.component_names:
                if name not in self.pipes:
                    pipeline.remove_pipe(name)
            what, needed = self.doing
            if not set(needed) & set(pipeline.pipe_names):
                raise ConfigError(
                    f"{self.id} has no component that {what} ({' or '.join(needed)}); it is a pipeline for "
                    f"{pipeline.lang!r}. Use a trained pipeline of the texts' language, such as 'en-core-web-sm'."
                )
            self._pipeline = pipeline
        return self._pipeline


class SpacyTagger(SpacyPipeline):
    """A spaCy pipeline that satisfies `Tagger`.

    Args:
        model (`str`): a short name of the catalogue or the local folder of a spaCy pipeline.

    Example:
        >>> SpacyTagger("en-core-web-sm").id
        'en-core-web-sm'
    """

    pipes = ("tok2vec", "transformer", *_TAGGING, "attribute_ruler")
    doing = ("tags words", _TAGGING)

    def tag(self, texts: Sequence[str]) -> list[list[str]]:
        """Tag each text's tokens.

        Args:
            texts (`Sequence[str]`): texts. Sensitive if they are.
        Returns:
            `list[list[str]]`: universal part-of-speech tags, one a token of `tokenize`. As sensitive as the texts.
        """
        return self.tag_tokens([self.tokenize(text) for text in texts])

    def tokenize(self, text: str) -> list[str]:
        """Return the tokens that `tag` gives a tag each; runs without a space are cut at 64 characters."""
        pipeline = self._load()
        with pipeline.memory_zone():
            return [token.text for piece in RUNS.findall(encodable(text)) for token in pipeline.make_doc(piece)]

    def tag_tokens(self, sentences: Sequence[Sequence[str]], *, batch_size: int = 1) -> list[list[str]]:
        """Tag texts that are already tokenized; of more than 1,024 tokens, each 1,024 are judged by themselves.

        Args:
            sentences (`Sequence[Sequence[str]]`): tokens of each text. Sensitive if they are.
            batch_size (`int`, defaults to 1): texts that share a matrix product, for public texts only: more are
                faster, and nothing promises then that a text's tags do not depend on the others.
        Returns:
            `list[list[str]]`: one universal tag a token, "" where the pipeline gives none. As sensitive as the texts.
        """
        pipeline = self._load()
        document = self._spacy().tokens.Doc
        tagged: list[list[str]] = [[] for _ in sentences]
        owners = [owner for owner, words in enumerate(sentences) for _ in range(0, len(words), PIECE_TOKENS)]
        with pipeline.memory_zone():
            pieces = (
                document(
                    pipeline.vocab, words=[encodable(word) or " " for word in words[start : start + PIECE_TOKENS]]
                )
                for words in sentences
                for start in range(0, len(words), PIECE_TOKENS)
            )
            for owner, piece in zip(owners, pipeline.pipe(pieces, batch_size=batch_size), strict=True):
                tagged[owner] += [token.pos_ for token in piece]
        return tagged

    def tag_words(self, sentences: Sequence[Sequence[str]], *, batch_size: int = 1) -> list[np.ndarray]:
        """Tag texts that are already tokenized with the 11 classes of `tags.TAGS`.

        Words of another language or script get what the pipeline says, mostly X or NOUN; none is an error.

        Args:
            sentences (`Sequence[Sequence[str]]`): tokens of each text; without their capitals, tags of names are the
                worse. Sensitive if they are.
            batch_size (`int`, defaults to 1): as in `tag_tokens`.
        Returns:
            `list[np.ndarray]`: places in `TAGS`, int8, one a token. As sensitive as the texts.
        """
        return [tag_codes(names) for names in self.tag_tokens(sentences, batch_size=batch_size)]


def encodable(text: str) -> str:
    """Return the text with a question mark for each lone surrogate, which spaCy cannot store."""
    return text.encode("utf-8", "replace").decode("utf-8")
