import subprocess
import sys

import pytest

from hf_dpsynth import models
from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.models import catalog


class Stub:
    def generate(self, prompts, *, max_new_tokens, temperature, seed):
        return list(prompts)

    def embed(self, texts):
        return None


def test_every_row_says_what_it_is_and_under_which_licence():
    rows = catalog.models() + catalog.datasets()
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        assert row.licence and row.source and row.about
        assert row.size > 1e6 and len(row.sha256) == 64
        assert (row.kind == "data") == bool(row.file)
    assert {row.name for row in catalog.datasets()} == {"movie", "trec", "sms-spam", "fine-foods", "spam-assassin"}


def test_an_unknown_model_lists_the_known_ones_and_the_closest():
    with pytest.raises(AssetError, match=r"Did you mean 'minilm'\?.*smollm2-135m.*glove-50d"):
        models.pull("minlm")


def test_a_local_folder_is_returned_as_it_is(tmp_path):
    assert models.pull(str(tmp_path)) == str(tmp_path)


def test_a_hub_id_out_of_reach_is_one_clear_line(monkeypatch):
    monkeypatch.setenv("HF_DPSYNTH_OFFLINE", "1")
    with pytest.raises(AssetError, match=r"could not fetch nobody/no-such-model from the Hub"):
        models.pull("nobody/no-such-model")


def test_a_model_id_holds_no_path(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    name = catalog.model_id(str(folder))
    assert name.startswith("mine@") and str(tmp_path) not in name
    assert catalog.model_id("minilm") == "minilm"
    assert catalog.model_id("org/name") == "org/name"


def test_objects_that_satisfy_a_protocol_pass_through():
    stub = Stub()
    assert models.load_generator(stub) is stub
    assert models.load_embedder(stub) is stub


def test_names_become_local_models_without_loading_them():
    assert models.load_generator("smollm2-135m").id == "smollm2-135m"
    assert models.load_embedder("minilm").id == "minilm"


def test_objects_without_the_method_are_refused():
    with pytest.raises(ConfigError, match=r"has \.generate"):
        models.load_generator(object())
    with pytest.raises(ConfigError, match=r"has \.embed"):
        models.load_embedder(object())


def test_a_name_that_the_package_lacks_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'push'"):
        _ = models.push


def test_importing_the_floor_imports_no_heavy_package():
    code = (
        "import sys, hf_dpsynth.data, hf_dpsynth.devices, hf_dpsynth.models.catalog, hf_dpsynth.models.causal_lm, "
        "hf_dpsynth.models.sentence, hf_dpsynth.models.tagger, hf_dpsynth.models.packed_linear, "
        "hf_dpsynth.models.key_value_cache; "
        "heavy = {'torch', 'transformers', 'spacy', 'accelerate', 'sentence_transformers'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.stdout.strip() == "[]", run.stderr
