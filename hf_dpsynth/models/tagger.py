"""Part-of-speech tags from spaCy, loaded from a folder of the catalogue, with only the parts that tagging needs.

Texts are tagged one at a time, so a text's tags are a function of that text alone.
"""

from collections.abc import Sequence
from typing import Any

from hf_dpsynth.errors import AssetError
from hf_dpsynth.extras import need
from hf_dpsynth.models.catalog import model_id, pull

_PIPES = ("tok2vec", "tagger", "attribute_ruler")


class SpacyTagger:
    """A spaCy pipeline that satisfies `Tagger`.

    Args:
        model (`str`): a short name of the catalogue or the local folder of a spaCy pipeline.

    Example:
        >>> SpacyTagger("en-core-web-sm").id
        'en-core-web-sm'
    """

    def __init__(self, model: str = "en-core-web-sm") -> None:
        self.model = model
        self._pipeline: Any = None

    @property
    def id(self) -> str:
        """Return the public name of the model."""
        return model_id(self.model)

    def __repr__(self) -> str:
        return f"SpacyTagger({self.model!r})"

    def tag(self, texts: Sequence[str]) -> list[list[str]]:
        """Tag each text's tokens.

        Args:
            texts (`Sequence[str]`): texts. Sensitive if they are.
        Returns:
            `list[list[str]]`: universal part-of-speech tags, one a token of `tokenize`. As sensitive as the texts.
        """
        pipeline = self._load()
        return [[token.pos_ for token in pipeline(text)] for text in texts]

    def tokenize(self, text: str) -> list[str]:
        """Return the tokens that `tag` gives a tag each."""
        return [token.text for token in self._load().make_doc(text)]

    def tag_tokens(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """Tag texts that are already tokenized.

        Args:
            sentences (`Sequence[Sequence[str]]`): tokens of each text. Sensitive if they are.
        Returns:
            `list[list[str]]`: one universal tag a token. As sensitive as the texts.
        """
        pipeline = self._load()
        document = need("spacy", extra="tagger", what="SpacyTagger").tokens.Doc
        return [[token.pos_ for token in pipeline(document(pipeline.vocab, words=list(words)))] for words in sentences]

    def _load(self) -> Any:
        """Load the pipeline at the first use."""
        if self._pipeline is None:
            spacy = need("spacy", extra="tagger", what="SpacyTagger")
            try:
                pipeline = spacy.load(pull(self.model))
            except (OSError, ValueError) as error:
                raise AssetError(f"{self.model} does not load as a spaCy pipeline: {error}") from error
            for name in pipeline.component_names:
                if name not in _PIPES:
                    pipeline.remove_pipe(name)
            self._pipeline = pipeline
        return self._pipeline
