"""What is trained of an inverter: a mapper, and low-rank updates of a frozen language model."""

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_dpsynth.compute.token_loss import frozen_head, precision, token_losses
from hf_dpsynth.devices import Devices, best_dtype
from hf_dpsynth.extras import need
from hf_dpsynth.models.adapters import low_rank
from hf_dpsynth.models.causal_lm import load_pretrained
from hf_dpsynth.models.inverter_examples import Examples, noisy
from hf_dpsynth.models.inverter_folder import new_mapper, prefixes
from hf_dpsynth.models.inverter_settings import InverterTraining
from hf_dpsynth.privacy.keys import public_seed

if TYPE_CHECKING:
    import torch

_WHAT = "training an inverter"


class Network:
    """A language model with low-rank updates behind a mapper of vectors; both together are trained.

    Args:
        model (`str`): the causal language model.
        settings (`InverterTraining`): rank, sizes, precision and seed.
    """

    def __init__(self, model: str, settings: InverterTraining) -> None:
        self._torch = need("torch", extra="models", what=_WHAT)
        devices = Devices.current()
        devices.limit_threads()
        self.device = devices.torch_device()
        self._rough = (settings.dtype or best_dtype(self.device)) == "bfloat16"
        base, self.tokenizer = load_pretrained(model, "bfloat16" if self._rough else "float32")
        base.to(self.device).eval()
        if self._rough and self.device.type == "cpu":
            # measured: for bfloat16 on a CPU the fused attention of torch is slow to differentiate
            base.set_attn_implementation("eager")
        self._settings = settings
        self._generator = self._torch.Generator().manual_seed(public_seed(settings.seed, "initial parameters"))
        self.tuned = low_rank(
            base,
            rank=settings.rank,
            target_modules="all-linear",
            generator=self._generator,
            rough=self._rough,
            name=model,
            what=_WHAT,
        )
        found = frozen_head(self.tuned, autocast=self._rough)
        self._body: Any = self.tuned if found is None else found[0]
        self._head: Any = None if found is None else found[1]
        forward = getattr(self._body, "get_base_model", lambda: self._body)().forward
        self._accepts = frozenset(inspect.signature(forward).parameters)
        self.mapper: Any = None

    def build(self, dimension: int) -> None:
        """Make the mapper of vectors of a width."""
        settings, words = self._settings, self.tuned.get_input_embeddings().weight
        made = new_mapper(dimension, settings.hidden, settings.prefix_length, words, self._generator)
        self.mapper = made.to(self.device)

    @property
    def parameters(self) -> list["torch.nn.Parameter"]:
        """The parameters that are trained, in a fixed order."""
        return [
            parameter
            for module in (self.mapper, self.tuned)
            for parameter in module.parameters()
            if parameter.requires_grad
        ]

    def loss(self, texts: Examples, rows: list[int], generator: Any, noise_std: float) -> "torch.Tensor":
        """Return the mean loss of a batch's tokens, in nats, with noise on the vectors.

        Args:
            texts (`Examples`): public texts.
            rows (`list[int]`): those of the batch.
            generator (`torch.Generator`): draws the noise.
            noise_std (`float`): the largest expected length of the noise.
        """
        torch, vectors = self._torch, texts.vectors[rows]
        if noise_std:
            share = torch.rand(len(rows), generator=generator, dtype=torch.float64).numpy()
            directions = torch.randn(vectors.shape, generator=generator, dtype=torch.float64).numpy()
            vectors = noisy(vectors, noise_std * share, directions)
        losses, count = self._summed([texts.tokens[row] for row in rows], vectors)
        found: Any = losses / count
        return found

    def mean_loss(self, texts: Examples) -> float:
        """Return the mean loss of all tokens of public texts, in nats, without noise."""
        total, count, size = 0.0, 0, self._settings.batch_size
        order = sorted(range(len(texts.tokens)), key=lambda row: len(texts.tokens[row]))
        with self._torch.inference_mode():
            for start in range(0, len(order), size):
                rows = order[start : start + size]
                found, tokens = self._summed([texts.tokens[row] for row in rows], texts.vectors[rows])
                total, count = total + float(found), count + tokens
        return total / count

    def _summed(self, tokens: list[tuple[int, ...]], vectors: np.ndarray) -> tuple["torch.Tensor", int]:
        """Return the sum of the losses of a batch's tokens, and how many there are."""
        torch, device = self._torch, self.device
        width = max(map(len, tokens))
        targets = torch.full((len(tokens), width), -100, dtype=torch.long)
        for row, held in enumerate(tokens):
            targets[row, : len(held)] = torch.tensor(held)
        targets = targets.to(device)
        known = targets[:, :-1].clamp(min=0)
        with precision(device, self._rough):
            words = self.tuned.get_input_embeddings()(known)
            before = prefixes(self.mapper, torch.from_numpy(vectors).to(device)).to(words.dtype)
            mask = torch.cat([targets.new_ones(before.shape[:2]), (targets[:, :-1] != -100).long()], dim=1)
            options = {"use_cache": False, "logits_to_keep": width}
            taken = {name: value for name, value in options.items() if name in self._accepts}
            made = self._body(inputs_embeds=torch.cat([before, words], dim=1), attention_mask=mask, **taken)
            kept = targets != -100
            # the vocabulary is most of the work: only what predicts a token is multiplied by it
            found = (made.logits if self._head is None else made.last_hidden_state)[:, -width:][kept]
            if self._head is not None:
                return token_losses(found, self._head.weight, targets[kept]).sum(), int(kept.sum())
        losses = torch.nn.functional.cross_entropy(found.float(), targets[kept], reduction="sum")
        return losses, int(kept.sum())
