"""Losses of tokens in blocks are those of the whole table of logits, each of its own hidden state alone."""

import math

import pytest

torch = pytest.importorskip("torch")

from hf_dpsynth.compute import token_loss  # noqa: E402
from hf_dpsynth.compute.token_loss import token_losses  # noqa: E402


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(token_loss, "_BLOCK", 4)


def tokens(count, *, dtype=torch.float32, width=6, words=11):
    torch.manual_seed(count)
    hidden = torch.randn(count, width, dtype=dtype, requires_grad=True)
    return hidden, torch.randn(words, width).to(dtype), torch.randint(0, words, (count,))


@pytest.mark.parametrize("count", [1, 4, 10])
def test_losses_and_gradients_are_those_of_plain_autograd(count):
    hidden, weight, targets = tokens(count)
    scale = torch.randn(count)
    found = token_losses(hidden, weight, targets)
    (gradient,) = torch.autograd.grad((found * scale).sum(), hidden)
    plain = torch.nn.functional.cross_entropy(hidden @ weight.T, targets, reduction="none")
    (expected,) = torch.autograd.grad((plain * scale).sum(), hidden)
    assert torch.allclose(found, plain, atol=1e-6) and torch.allclose(gradient, expected, atol=1e-6)


def test_products_in_bfloat16_keep_losses_in_float32_and_the_precision_of_the_states():
    hidden, weight, targets = tokens(10)
    found = token_losses(hidden, weight.bfloat16(), targets)
    (gradient,) = torch.autograd.grad(found.sum(), hidden)
    plain = torch.nn.functional.cross_entropy(hidden @ weight.T, targets, reduction="none")
    assert found.dtype == gradient.dtype == torch.float32
    assert torch.allclose(found, plain, atol=0.1) and not torch.equal(found, plain)


def test_a_token_that_is_not_finite_leaves_the_others_as_they_were():
    hidden, weight, targets = tokens(10)
    expected = torch.autograd.grad(token_losses(hidden, weight, targets).sum(), hidden)[0]
    with torch.no_grad():
        hidden[3] = math.nan
    found = token_losses(hidden, weight, targets)
    gradient = torch.autograd.grad(found.sum(), hidden)[0]
    others = [row for row in range(10) if row != 3]
    assert found[3].isnan() and torch.equal(gradient[others], expected[others])


def test_no_tokens_and_no_gradients():
    hidden, weight, targets = tokens(0)
    assert token_losses(hidden, weight, targets).shape == (0,)
    hidden, weight, targets = tokens(5)
    with torch.no_grad():
        assert not token_losses(hidden, weight, targets).requires_grad
