"""What each process does in test_aug_pe_processes.py: scenes in order, whose results go to a file by rank."""

import os
import pathlib
import signal
import sys

import numpy as np

import hf_dpsynth
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.evolution import aug_pe, population
from tests.launch import play
from tests.stubs import CANARY, WORDS, StubEmbedder, reviews, synth

RANK = int(os.environ.get("RANK", "0"))
count, noisy = aug_pe._Votes._count, aug_pe.noisy_counts


class Written:
    """Public sentences that follow from the seed and the place; counts its prompts."""

    __module__ = "tests.mechanisms.evolving_ranks"  # also where this file is run: it names the model in a plan
    asked = 0

    def generate(self, prompts, *, max_new_tokens=32, temperature=1.0, seed=0):
        self.asked += len(prompts)
        streams = (np.random.default_rng([seed, place]) for place in range(len(prompts)))
        return [" ".join(stream.choice(WORDS, size=6)) for stream in streams]


class Watched(StubEmbedder):
    """Counts the private texts that it saw."""

    __module__ = "tests.mechanisms.evolving_ranks"
    private = 0

    def embed(self, texts):
        self.private += sum(CANARY in text for text in texts)
        return super().embed(texts)


def evolve(out, **more):
    """A run whose blocks are so small that both processes write."""
    settings = {"generator": Written(), "embedder": Watched(), "num_rows": 24} | more
    return synth(out=out, **settings)


def facts(made):
    return {
        "rows": made[:], "charges": [charge.key for charge in made.privacy.charges], "id": made.privacy.guarantee_id,
        "statement": made.privacy.statement(), "more": made.privacy.more(5, seed=2)[:],
    }  # fmt: skip


def scene_whole():
    """A run with a directory of the first process; the other one names another."""
    return facts(evolve(f"whole-{RANK}"))


def scene_lookahead():
    return facts(evolve("ahead", params={"iterations": 2, "variations": 2, "lookahead": 2}))


def scene_votes():
    """The counts that the first process adds noise to, here none, and what each process read and wrote."""
    seen, generator, embedder = [], Written(), Watched()

    def watched(counts, sigma):
        seen.append([part.tolist() for part in counts])
        return noisy(counts, 0.0)

    aug_pe.noisy_counts = watched
    halves = {"neg": 0.5, "pos": 0.5}
    made = evolve(None, generator=generator, embedder=embedder, label_proportions=halves)
    aug_pe.noisy_counts = noisy
    return {"seen": seen, "rows": made[:], "asked": generator.asked, "private": embedder.private}


def scene_one_record():
    """Fewer records than processes."""
    return facts(evolve(None, ds=reviews(60).select([0])))


def scene_other_seed():
    evolve("other", seed=RANK)


def broken_at(rank, number, error):
    calls = []

    def broken(self, rivals):
        calls.append(1)
        if (RANK, len(calls)) == (rank, number):
            raise error
        return count(self, rivals)

    aug_pe._Votes._count = broken


def scene_count_fails():
    """A stranger's error in the second process, in the second round."""
    broken_at(1, 2, ValueError(f"{CANARY} in a stranger's message"))
    evolve("count")


def scene_store_fails():
    """The first process fails between two requests."""

    def broken(self, texts):
        raise ConfigError("the disk is full")

    kept, population.Evolution.scores = population.Evolution.scores, broken
    try:
        evolve("disk")
    finally:
        population.Evolution.scores = kept


def scene_resumed():
    """Both processes go on with the run whose second round failed."""
    return facts(evolve("count"))


def killed_at(rank, number):
    calls = []

    def dies(self, rivals):
        calls.append(1)
        if (RANK, len(calls)) == (rank, number):
            os.kill(os.getpid(), signal.SIGKILL)
        return count(self, rivals)

    aug_pe._Votes._count = dies


def scene_killed():
    """The second process is killed in the second round, after its charge."""
    killed_at(1, 2)
    evolve("killed")


def scene_killed_leader():
    """The first process is killed in the second round, after its charge."""
    killed_at(0, 2)
    evolve("leader")


def reset():
    population.BLOCK, aug_pe._Votes._count = 4, count


if __name__ == "__main__":
    assert pathlib.Path(hf_dpsynth.__file__).parents[1] == pathlib.Path(__file__).parents[2]
    play(RANK, globals(), sys.argv[1:], reset)
