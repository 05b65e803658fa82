"""Per-example gradients: both engines equal plain autograd of each example alone, and what couples is refused."""

import pytest

from hf_dpsynth.compute import per_example
from hf_dpsynth.errors import ConfigError, PrivacyError

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")


class Bag(torch.nn.Module):
    """Embeds numbers, applies layers, and gives the loss of each example."""

    def __init__(self, *layers, couple=False):
        super().__init__()
        self.words = torch.nn.Embedding(10, 4)
        self.layers = torch.nn.Sequential(*layers, torch.nn.Linear(4, 1))
        self.couple = couple
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            parameter.data.copy_(torch.rand(parameter.shape, generator=generator) - 0.5)

    def losses(self, examples):
        rows = self.layers(self.words(torch.tensor(examples)).sum(1))[:, 0] ** 2
        return rows / len(examples) if self.couple else rows


EXAMPLES = [[1, 2, 3], [4, 4, 4], [0, 9, 1], [5, 6, 7], [2, 2, 8]]


def manual(model, examples):
    rows = []
    for example in examples:
        model.zero_grad()
        model.losses([example])[0].backward()
        rows.append([parameter.grad.clone() for parameter in model.parameters()])
    return [torch.stack(parts) for parts in zip(*rows, strict=True)]


def whole(engine, examples):
    parts = [torch.cat(parts) for parts in zip(*engine.gradients(examples), strict=True)]
    engine.close()
    return parts


@pytest.mark.parametrize("name", ["loop", "hooks"])
@pytest.mark.parametrize("size", [1, 2, 5, 99])
def test_engines_give_the_gradients_of_each_example_alone(name, size):
    model = Bag(torch.nn.LayerNorm(4), torch.nn.Linear(4, 4), torch.nn.Tanh())
    wanted = manual(model, EXAMPLES)
    found = whole(per_example.engine(name, model, model.losses, micro_batch_size=size), EXAMPLES)
    for a, b in zip(found, wanted, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("name", ["loop", "hooks"])
def test_an_examples_gradient_does_not_depend_on_its_neighbours(name):
    model = Bag(torch.nn.Linear(4, 4), torch.nn.Tanh())
    among = whole(per_example.engine(name, model, model.losses, micro_batch_size=9), EXAMPLES)
    other = whole(per_example.engine(name, model, model.losses, micro_batch_size=9), [[3, 3, 3], EXAMPLES[0]])
    for a, b in zip(among, other, strict=True):
        assert torch.allclose(a[0], b[1], atol=1e-6)


@pytest.mark.parametrize("name", ["loop", "hooks"])
def test_an_empty_batch_has_no_gradients(name):
    model = Bag()
    assert list(per_example.engine(name, model, model.losses, micro_batch_size=2).gradients([])) == []


def test_a_layer_that_couples_the_batch_is_refused():
    coupled = Bag(couple=True)
    engine = per_example.engine("hooks", coupled, coupled.losses, micro_batch_size=9)
    with pytest.raises(PrivacyError, match="couples the records"):
        per_example.check(engine, coupled.losses, EXAMPLES)
    normed = Bag(torch.nn.BatchNorm1d(4))
    with pytest.raises(ConfigError, match="BatchNorm1d"):
        per_example.engine("hooks", normed, normed.losses, micro_batch_size=9)
    normed.train()  # the loop keeps such a layer at its fixed statistics, or it fails on one example
    engine = per_example.engine("loop", normed, normed.losses, micro_batch_size=9)
    before = normed.layers[0].running_mean.clone()
    whole(engine, EXAMPLES)
    assert torch.equal(before, normed.layers[0].running_mean)


def test_a_model_that_would_train_nothing_is_refused():
    model = Bag()
    model.layers[0].weight.data.zero_()
    model.layers[0].bias.data.zero_()
    with pytest.raises(PrivacyError, match="train nothing"):
        per_example.check(per_example.engine("loop", model, model.losses, micro_batch_size=1), model.losses, EXAMPLES)
    with pytest.raises(ConfigError, match="no trainable parameter"):
        per_example.engine("loop", Bag().requires_grad_(False), model.losses, micro_batch_size=1)


def test_a_right_engine_passes_and_leaves_the_model_as_it_was():
    model = Bag(torch.nn.Linear(4, 4))
    per_example.check(per_example.engine("hooks", model, model.losses, micro_batch_size=2), model.losses, EXAMPLES)
    again = per_example.engine("hooks", model, model.losses, micro_batch_size=2)  # hooks twice would be refused
    again.close()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_losses_that_are_reduced_are_refused():
    model = Bag()
    for name in ("loop", "hooks"):
        engine = per_example.engine(name, model, lambda rows: model.losses(rows).mean(), micro_batch_size=5)
        with pytest.raises(PrivacyError, match="one for each"):
            list(engine.gradients(EXAMPLES))
        engine.close()


def test_out_of_memory_halves_the_micro_batch_and_counts_nobody_twice():
    model, sizes = Bag(torch.nn.Linear(4, 4)), []

    def losses(examples):
        sizes.append(len(examples))
        found = model.losses(examples)
        if len(examples) > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
        return found

    wanted = manual(model, EXAMPLES)
    engine = per_example.engine("hooks", model, losses, micro_batch_size=5)
    found = whole(engine, EXAMPLES)
    assert sizes == [5, 2, 2, 1] and engine.micro_batch_size == 2
    for a, b in zip(found, wanted, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_other_errors_are_not_swallowed():
    model = Bag()

    def losses(examples):
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        list(per_example.engine("hooks", model, losses, micro_batch_size=4).gradients(EXAMPLES))


def test_dropout_stays_off_while_hooks_listen():
    model = Bag(torch.nn.Dropout(0.5))
    found = whole(per_example.engine("hooks", model, model.losses, micro_batch_size=5), EXAMPLES)
    for a, b in zip(found, manual(model, EXAMPLES), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_engines_by_name():
    model = Bag()
    assert per_example.engine("auto", model, model.losses, micro_batch_size=10**7).name == "loop"
    chosen = per_example.engine("auto", model, model.losses, micro_batch_size=1)
    assert chosen.name == "hooks"
    chosen.close()
    with pytest.raises(ConfigError, match="'auto', 'loop' or 'hooks'"):
        per_example.engine("ghost", model, model.losses, micro_batch_size=1)
    with pytest.raises(ConfigError, match="micro_batch_size is 0"):
        per_example.engine("hooks", model, model.losses, micro_batch_size=0)
    model.layers.gradient_checkpointing = True
    with pytest.raises(ConfigError, match="gradient checkpointing"):
        per_example.engine("hooks", model, model.losses, micro_batch_size=1)
