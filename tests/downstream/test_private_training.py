import json
import math

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dpsynth.compute import per_example
from hf_dpsynth.downstream import Classifier, DPOnReal, Examples, InContext, WordCNN, study
from hf_dpsynth.downstream.private_models import learner, note
from hf_dpsynth.downstream.private_training import ADJACENCY, Training
from hf_dpsynth.downstream.word_cnn import UNKNOWN
from hf_dpsynth.errors import AssetError, ConfigError, PrivacyError
from hf_dpsynth.privacy import accounting
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.sgd import PoissonSampling
from tests.downstream.tiny_models import BAD, CANARY, EXTRA, GOOD, rows, save_causal, save_encoder

SMALL = WordCNN(filters=48, hidden_size=48)
DELTA = 1e-4
PUBLIC = [("a", 0), ("good film", 1), ("a slow and dull film of the worst kind", 0)]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """A public file of word vectors that knows the words of the rows, not their canaries."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("vectors") / "public.txt"
    words = dict.fromkeys(word.lower() for word in [*GOOD, *BAD, *EXTRA] if word.isalpha())
    path.write_text("".join(f"{word} {' '.join(f'{x:.3f}' for x in rng.normal(size=32))}\n" for word in words))
    return str(path)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return Classifier(model=save_encoder(tmp_path_factory.mktemp("encoder")))


@pytest.fixture(scope="module")
def train():
    return Examples.of(rows(120), label_column="label")


@pytest.fixture(scope="module")
def held_out():
    return Examples.of(rows(60, first=500, canary="t"), label_column="label")


def options(vectors, **more):
    return DPOnReal(**({"delta": DELTA, "steps": 10, "batch_size": 40, "vectors": vectors} | more))


def training(model, train, chosen, seed=1):
    """A training with a key that the test can make again, its engine, and its encoded rows."""
    trained = learner(model, train, vectors=chosen.vectors, seed=0)
    made = Training(chosen, chosen.schedule(len(train)), trained, train, Key.from_insecure_seed(seed))
    engine = per_example.engine(
        chosen.engine, trained.network, trained.losses, micro_batch_size=chosen.micro_batch_size
    )
    return made, engine, made._rows


def flat(gradients):
    return torch.cat([gradient.flatten() for gradient in gradients])


@pytest.fixture(scope="module")
def noiseless(train, vectors):
    return training(SMALL, train, options(vectors, epsilon=math.inf, clip_norm=0.01, batch_size=40))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 119), max_size=4, unique=True), st.integers(0, 119))
def test_one_row_moves_an_update_by_at_most_the_clip_norm_over_the_public_batch_size(noiseless, batch, row):
    made, engine, encoded = noiseless
    without = made.gradients(engine, [encoded[number] for number in batch], 0)
    beside = made.gradients(engine, [encoded[number] for number in [*batch, row]], 0)
    moved = float((flat(beside) - flat(without)).norm())
    # clipping binds here, so the bound is also reached: a clip norm that is 10 % wrong fails
    assert 0.99 * 0.01 / 40 < moved <= 0.01 / 40 * (1 + 1e-4)


@pytest.mark.parametrize("name", ["loop", "hooks"])
@pytest.mark.parametrize("kind", ["words", "encoder"])
def test_the_gradients_of_a_batch_are_those_of_each_example_alone(kind, name, train, vectors, encoder):
    trained = learner(SMALL if kind == "words" else encoder, train, vectors=vectors, seed=0)
    examples = list(zip(trained.encode([text for text, _ in PUBLIC]), [label for _, label in PUBLIC], strict=True))
    engine = per_example.engine(name, trained.network, trained.losses, micro_batch_size=2)
    per_example.check(engine, trained.losses, examples)
    wanted = {"convolution", "hidden", "logits"} if kind == "words" else set()
    moving = {n.split(".")[0] for n, p in trained.network.named_parameters() if p.requires_grad and "." in n}
    assert moving == wanted  # word vectors and encoder stay what they were before anybody saw a private row


def test_an_empty_batch_is_noise_alone_with_the_standard_deviation_of_the_event(train, vectors):
    chosen = options(vectors, clip_norm=0.7)
    made, engine, _ = training(SMALL, train, chosen)
    schedule = chosen.schedule(len(train))
    noise = torch.cat([flat(made.gradients(engine, [], step)) for step in range(6)])
    wanted = schedule.noise_multiplier * 0.7 / 40
    # 40,000 draws: the standard deviation of the estimate is 0.35 %, so 10 % is 28 of them
    assert len(noise) > 40_000
    assert float(noise.std()) == pytest.approx(wanted, rel=0.02) and abs(float(noise.mean())) < 0.03 * wanted
    assert schedule.sampling.event(schedule.noise_multiplier).event.event.noise_multiplier == schedule.noise_multiplier


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 10.0])
def test_the_event_of_a_calibrated_fit_costs_what_was_asked_and_never_more(epsilon, vectors):
    schedule = options(vectors, epsilon=epsilon).schedule(120)
    event = schedule.sampling.event(schedule.noise_multiplier)
    cost = accounting.epsilon(event, DELTA, adjacency=ADJACENCY, discretisation=accounting.interval(epsilon))
    assert 0.998 * epsilon < cost <= epsilon
    assert (schedule.guarantee.epsilon, schedule.guarantee.delta) == (epsilon, DELTA)
    assert schedule.guarantee.neighbours == "zero-out" and "public" in schedule.guarantee.assumptions[0]


def test_the_batches_are_those_of_the_sampler_that_is_accounted_and_all_steps_are_taken(train, vectors, monkeypatch):
    chosen = options(vectors)
    made, engine, encoded = training(SMALL, train, chosen, seed=9)
    engine.close()
    seen, gradients = [], Training.gradients
    monkeypatch.setattr(Training, "gradients", lambda self, *args: seen.append(args[1:]) or gradients(self, *args))
    made.fit()
    sampling, key = PoissonSampling(num_records=120, batch_size=40, steps=10), Key.from_insecure_seed(9)
    wanted = [([encoded[row] for row in sampling.batch(key, step, 120)], step) for step in range(10)]
    assert seen == wanted and chosen.schedule(120).sampling == sampling


def test_rows_without_a_text_or_a_label_keep_their_place_in_the_declared_number(vectors, monkeypatch):
    nulled = rows(120).to_dict()
    nulled["text"][7], nulled["label"][9] = None, None
    train = Examples.of(Dataset.from_dict(nulled, rows(2).features), label_column="label")
    asked, schedule = [], DPOnReal.schedule
    monkeypatch.setattr(DPOnReal, "schedule", lambda self, number: asked.append(number) or schedule(self, number))
    fitted = options(vectors).fit(SMALL, train)
    assert asked == [120] and fitted.num_train == 118


def test_the_vocabulary_comes_from_the_public_file_and_not_from_the_rows(train, vectors):
    chosen = options(vectors)
    others = Examples.of(rows(120, first=900, canary="otherword"), label_column="label")
    fitted = [chosen.fit(SMALL, some) for some in (train, others)]
    assert fitted[0]._vocabulary == fitted[1]._vocabulary and CANARY not in str(fitted[0]._vocabulary)
    assert fitted[0].encode(f"good {CANARY}7")[1] == UNKNOWN != fitted[0].encode("good")[0]
    weights = [model._network.embedding.weight for model in fitted]
    assert torch.equal(*weights) and not weights[0].requires_grad
    assert "would be a release of its own" in note(SMALL, vectors) and "/" not in note(SMALL, vectors)


def test_the_seed_chooses_the_first_weights_and_never_the_noise(train, vectors):
    chosen = options(vectors)
    start = [flat(learner(SMALL, train, vectors=vectors, seed=s).network.parameters()) for s in (1, 1, 2)]
    assert torch.equal(start[0], start[1]) and not torch.equal(start[0], start[2])
    first, second = (chosen.fit(SMALL, train, seed=1)._network for _ in range(2))
    assert not torch.equal(first.logits.weight, second.logits.weight)


def test_an_infinite_epsilon_adds_no_noise_and_learns(train, held_out, vectors):
    free = options(vectors, epsilon=math.inf, delta=None, steps=40, learning_rate=2e-2)
    made, engine, _ = training(SMALL, train, free)
    assert free.schedule(120).noise_multiplier == 0 and float(flat(made.gradients(engine, [], 0)).abs().max()) == 0
    assert free.fit(SMALL, train).accuracy(held_out) > 0.95


def test_a_head_on_a_frozen_encoder_learns(train, held_out, encoder, vectors):
    fitted = options(vectors, epsilon=math.inf, steps=60, learning_rate=0.2).fit(encoder, train)
    assert fitted.accuracy(held_out) > 0.9 and fitted.log_probabilities([]).shape == (0, 2)
    assert np.allclose(np.exp(fitted.log_probabilities(["a film", ""])).sum(axis=1), 1)


def test_a_study_shows_a_line_for_each_baseline_and_model(vectors, encoder, tmp_path):
    real = DatasetDict({"train": rows(120), "test": rows(40, first=500, canary="t")})
    baselines = [options(vectors, epsilon=e) for e in (3.0, math.inf)]
    models = [
        WordCNN(filters=8, hidden_size=8, embedding_size=8, epochs=1),
        Classifier(model=encoder.model, epochs=1),
        InContext(model=save_causal(tmp_path, "llama"), shots=0),
    ]
    found = study(real=real, synthetic={"made": rows(40, first=900, canary="s")}, label_column="label",
                  models=models, seeds=2, real_baselines=baselines)  # fmt: skip
    lines = [row for row in found.rows if row.source == "DP-on-real"]
    names = [model.name for model in models]
    assert [(row.model, row.guarantee) for row in lines] == [
        (name, guarantee) for guarantee in ("(3, 0.0001)-DP per record", "none") for name in names
    ]
    for row in lines[:2] + lines[3:5]:
        assert row.accuracy is not None and row.fits == 2 and row.num_train == 120 and row.amount == 1
        assert any("one fit" in limit or "no noise" in limit for limit in row.limits)
    assert all(row.accuracy is None and "InContext has none" in row.limits[0] for row in lines[2::3])
    assert any("public.txt" in limit for limit in lines[0].limits)
    assert found.uses_private_data and CANARY not in json.dumps(found.to_dict()) + found.table()
    assert [row.source for row in found.rows if row.source != "DP-on-real"].count("real") == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilon": 0}, "epsilon is 0"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"delta": 0.0}, "delta is 0.0"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"delta": "1/m"}, "delta is '1/m'"),
        ({"steps": 0}, "steps is 0"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"micro_batch_size": True}, "micro_batch_size is True"),
        ({"clip_norm": math.inf}, "clip_norm is inf"),
        ({"learning_rate": -1}, "learning_rate is -1"),
        ({"engine": "ghost"}, "engine is 'ghost'"),
    ],
)
def test_options_that_no_fit_can_use_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        DPOnReal(**wrong)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([options("glove-50d", batch_size=121)], "batch_size is 121 and the data has 120"),
        ([DPOnReal(batch_size=40)], r"delta= must be given: .* and 120 is declared"),
        ([DPOnReal], "holds a type"),
        ([options("no-such-file.txt")], "no file, folder or short name"),
    ],
)
def test_what_cannot_be_trained_is_told_before_a_mechanism_runs(settings, message):
    called = []
    real = DatasetDict({"train": rows(120), "test": rows(40, first=500)})
    with pytest.raises((ConfigError, AssetError), match=message) as caught:
        study(real=real, synthetic={"made": lambda train: called.append(1)}, label_column="label", models=[SMALL],
              real_baselines=settings)  # fmt: skip
    assert not called and CANARY not in str(caught.value)


def test_what_shows_only_after_the_split_is_said_in_the_line(vectors):
    found = study(real=rows(120), synthetic={}, label_column="label", models=[WordCNN(filters=8, epochs=1)], seeds=1,
                  real_baselines=[options(vectors, batch_size=110)])  # fmt: skip
    assert found.rows[-1].accuracy is None
    assert any("not run: batch_size is 110 and the data has 96" in limit for limit in found.rows[-1].limits)


def test_a_gradient_that_is_not_a_number_counts_as_zero_and_no_private_text_is_in_an_error(train, vectors):
    chosen = options(vectors, epsilon=math.inf)
    made, engine, encoded = training(SMALL, train, chosen)
    with torch.no_grad():
        made._learner.network.logits.weight[0, 0] = math.nan
    assert float(flat(made.gradients(engine, encoded[:3], 0)).abs().max()) == 0
    engine.close()
    with pytest.raises(PrivacyError) as caught:
        made.fit()
    assert CANARY not in str(caught.value)


def test_the_name_of_the_line_is_taken():
    with pytest.raises(ConfigError, match="'DP-on-real'"):
        study(real=rows(40), synthetic={"DP-on-real": rows(4)}, label_column="label", models=[SMALL])
