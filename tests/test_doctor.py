"""The doctor names what is there, what is missing and what to do, and is silent on the network unless asked."""

import importlib.metadata

import httpx2
import pytest

from hf_dpsynth import doctor


def found(**options):
    return {line.what: line for line in doctor.examine(**options)}


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*arguments, **options):
        raise httpx2.ConnectError("no network in tests")

    monkeypatch.setattr(httpx2, "head", refuse)


def test_versions_threads_blas_device_models_data_and_cache_are_named(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    lines = found()
    assert lines["datasets"].found == importlib.metadata.version("datasets")
    assert lines["threads"].found.startswith("1 ") and "threads)" in lines["BLAS"].found
    assert {"python", "device", "bfloat16", "cache", "cache of the Hub", "smollm2-135m", "glove-50d", "movie"} <= set(
        lines
    )


def test_what_is_missing_comes_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_DPSYNTH_CACHE", str(tmp_path))
    version = importlib.metadata.version

    def without_torch(name):
        if name == "torch":
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(doctor, "version", without_torch)
    lines = found()
    assert lines["torch"].todo == "pip install 'hf-dpsynth[models]'"
    assert lines["minilm"].todo == "hf-dpsynth models pull minilm (84 MB)"
    assert lines["movie"].todo == "hf-dpsynth data movie (32 MB)"
    assert lines["cache"].found == str(tmp_path)


def test_the_hub_is_asked_only_on_request(monkeypatch):
    assert found()["Hub"].found == "not asked"
    assert found(network=True)["Hub"].found == "out of reach (ConnectError)"
    monkeypatch.setattr(httpx2, "head", lambda *arguments, **options: httpx2.Response(200))
    assert found(network=True)["Hub"] == ("Hub", "reachable", "")


def test_a_machine_without_threadpoolctl_is_told_so(monkeypatch):
    monkeypatch.setattr(doctor, "_blas", list)
    assert "threadpoolctl" in found()["BLAS"].found
