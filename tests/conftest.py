import os

import pytest

os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def one_thread():
    """For products of such sizes that they take longer to share than to compute."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def call(capsys, monkeypatch):
    """Run the command line in this process: exit code, standard output, standard error."""
    from hf_dpsynth import cli

    monkeypatch.delenv("HF_DPSYNTH_DEBUG", raising=False)

    def run(*arguments):
        capsys.readouterr()
        code = cli.call([str(word) for word in arguments])
        return code, *capsys.readouterr()

    return run
