"""Named entities of texts from spaCy: people, organisations, places.

As in `tagger.py`, texts are read one at a time, so a text's entities are a function of that text alone; long texts are
cut at public lengths, and the strings of a call are forgotten by spaCy at its end.
"""

from typing import Any

from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.models.catalog import model_id, pull
from hf_dpsynth.models.tagger import PIECE_TOKENS, RUNS, encodable

_PIPES = ("tok2vec", "transformer", "ner")


class SpacyEntities:
    """A spaCy pipeline that finds named entities.

    Args:
        model (`str`): a short name of the catalogue or the local folder of a spaCy pipeline.
    Examples:
        >>> SpacyEntities("en-core-web-sm").id
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
        return f"SpacyEntities({self.model!r})"

    def entities(self, text: str) -> list[tuple[str, str]]:
        """Return the entities of a text as pairs of their kind and their words, in order. As sensitive as the text."""
        pipeline = self._load()
        document = need("spacy", extra="tagger", what="SpacyEntities").tokens.Doc
        found: list[tuple[str, str]] = []
        with pipeline.memory_zone():
            tokens = [token for run in RUNS.findall(encodable(text)) for token in pipeline.make_doc(run)]
            pairs = [(token.text or " ", bool(token.whitespace_)) for token in tokens]
            for start in range(0, len(pairs), PIECE_TOKENS):
                words, spaces = zip(*pairs[start : start + PIECE_TOKENS], strict=True)
                piece = pipeline(document(pipeline.vocab, words=list(words), spaces=list(spaces)))
                found += [(entity.label_, entity.text) for entity in piece.ents]
        return found

    def _load(self) -> Any:
        """Load the pipeline at the first use."""
        if self._pipeline is None:
            spacy = need("spacy", extra="tagger", what="SpacyEntities")
            try:
                pipeline = spacy.load(pull(self.model))
            except (OSError, ValueError) as error:
                raise AssetError(f"{self.model} does not load as a spaCy pipeline: {error}") from error
            for name in pipeline.component_names:
                if name not in _PIPES:
                    pipeline.remove_pipe(name)
            if "ner" not in pipeline.pipe_names:
                raise ConfigError(
                    f"{self.id} has no component that finds entities (ner). Use a trained pipeline of the texts' "
                    "language, such as 'en-core-web-sm'."
                )
            self._pipeline = pipeline
        return self._pipeline
