"""Named entities of texts from spaCy: people, organisations, places.

As in `tagger.py`, texts are read one at a time, so a text's entities are a function of that text alone; long texts are
cut at public lengths, and the strings of a call are forgotten by spaCy at its end.
"""

from hf_dpsynth.models.tagger import PIECE_TOKENS, RUNS, SpacyPipeline, encodable


class SpacyEntities(SpacyPipeline):
    """A spaCy pipeline that finds named entities.

    Args:
        model (`str`): a short name of the catalogue or the local folder of a spaCy pipeline.
    Examples:
        >>> SpacyEntities("en-core-web-sm").id
        'en-core-web-sm'
    """

    pipes = ("tok2vec", "transformer", "ner")
    doing = ("finds entities", ("ner",))

    def entities(self, text: str) -> list[tuple[str, str]]:
        """Return the entities of a text as pairs of their kind and their words, in order. As sensitive as the text."""
        pipeline = self._load()
        document = self._spacy().tokens.Doc
        found: list[tuple[str, str]] = []
        with pipeline.memory_zone():
            tokens = [token for run in RUNS.findall(encodable(text)) for token in pipeline.make_doc(run)]
            pairs = [(token.text or " ", bool(token.whitespace_)) for token in tokens]
            for start in range(0, len(pairs), PIECE_TOKENS):
                words, spaces = zip(*pairs[start : start + PIECE_TOKENS], strict=True)
                piece = pipeline(document(pipeline.vocab, words=list(words), spaces=list(spaces)))
                found += [(entity.label_, entity.text) for entity in piece.ents]
        return found
