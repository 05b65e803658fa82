"""Training an inverter on public text: the vector of a text in, the text out.

Encoder and language model are frozen; a mapper from vectors to virtual tokens and low-rank updates of the language
model are trained. Vectors get Gaussian noise and keep their length, because the vectors that are inverted later come
from noisy releases. Nothing here is private: a model that is trained on private text holds it, and every guarantee of
what is made with it is void.
"""

import io
import math
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hf_dpsynth.errors import AssetError, ConfigError, ResumeMismatch
from hf_dpsynth.extras import need
from hf_dpsynth.logging import get_logger, progress_bar
from hf_dpsynth.models.base import Embedder
from hf_dpsynth.models.catalog import load_embedder, model_id
from hf_dpsynth.models.inverter import PrefixInverter
from hf_dpsynth.models.inverter_examples import Examples, digest_of
from hf_dpsynth.models.inverter_folder import (
    CONFIG,
    InverterConfig,
    partial_of,
    read_config,
    replace_file,
    write_inverter,
)
from hf_dpsynth.models.inverter_network import Network
from hf_dpsynth.models.inverter_settings import InverterTraining
from hf_dpsynth.models.nearest_text import distinct_texts, encoder_id
from hf_dpsynth.privacy.keys import public_generator, public_seed

_CHECKPOINT = "checkpoint.pt"
_LEAST_RATE = 0.05  # of the learning rate, at the end
_WARM_UP = 20
_LOG_STEPS = 50
_HELD_OUT_TEXTS = 256  # read for the held-out loss

logger = get_logger(__name__)


def train_inverter(
    texts: Sequence[str],
    *,
    out: str | os.PathLike[str],
    encoder: str | Embedder = "minilm",
    model: str = "smollm2-135m",
    held_out: Sequence[str] = (),
    training: InverterTraining | None = None,
) -> PrefixInverter:
    """Train an inverter on public text and write it to a folder; called again, it goes on from its last checkpoint.

    Public text only: the inverter learns its texts, and one trained on private text voids every guarantee.

    Args:
        texts (`Sequence[str]`): public texts, best one sentence each; blank ones and copies are left out.
        out (`str` or path): the folder.
        encoder (`str` or `Embedder`): the embedder whose vectors will be inverted; it is frozen.
        model (`str`): the causal language model: a short name, a local folder or a Hub id.
        held_out (`Sequence[str]`): other public texts, whose loss before and after training is kept.
        training (`InverterTraining`, *optional*): how it is trained; the defaults when missing.
    Returns:
        `PrefixInverter`: the inverter in the folder.
    Raises:
        ConfigError: no text has a word, or the folder holds something else.
        ResumeMismatch: the folder holds an inverter of other texts, models or settings.
    """
    settings = InverterTraining() if training is None else training
    known, others = distinct_texts(texts), distinct_texts(held_out) if len(held_out) else []
    folder, embedder = Path(out), load_embedder(encoder)
    identity = _identity(settings, encoder_id(embedder), model_id(model), known, others)
    if _is_finished(folder, identity):
        return PrefixInverter(folder, encoder=embedder)
    network = Network(model, settings)
    kept = Examples.of(known, network.tokenizer, embedder, settings.max_tokens)
    unseen = Examples.of(others[:_HELD_OUT_TEXTS], network.tokenizer, embedder, settings.max_tokens)
    network.build(kept.vectors.shape[1])
    folder.mkdir(parents=True, exist_ok=True)
    trainer = _Trainer(network, settings, folder, identity)
    facts = trainer.run(kept, unseen)
    config = InverterConfig(
        encoder=encoder_id(embedder),
        dimension=int(kept.vectors.shape[1]),
        language_model=model,
        language_model_id=model_id(model),
        training={"identity": identity, **facts, **asdict(settings), "num_texts": len(kept.tokens)},
        **{name: getattr(settings, name) for name in ("prefix_length", "hidden", "max_tokens")},
    )
    write_inverter(folder, config, network.mapper, network.tuned)
    trainer.checkpoint.unlink(missing_ok=True)
    return PrefixInverter(folder, encoder=embedder)


def _identity(settings: InverterTraining, encoder: str, model: str, texts: list[str], others: list[str]) -> str:
    """Return a digest of all that a result depends on, the limit of time apart. Public."""
    values = asdict(settings)
    for name in ("minutes", "checkpoint_steps"):
        values.pop(name)
    return digest_of([repr(sorted(values.items())), encoder, model, *texts, "", *others])


def _is_finished(folder: Path, identity: str) -> bool:
    """Return whether a folder holds this inverter already, and refuse any other content."""
    if (folder / CONFIG).exists():
        if read_config(folder).training.get("identity") != identity:
            raise ResumeMismatch(
                f"{folder} holds an inverter of other texts, models or settings. Pass another folder for this one."
            )
        return True
    checkpoint = folder / _CHECKPOINT
    # a kill in the first checkpoint leaves a part of it behind; all that comes later has one beside it
    foreign = [path for path in folder.iterdir() if path != partial_of(checkpoint)] if folder.exists() else []
    if foreign and not checkpoint.exists():
        raise ConfigError(f"{folder} is not empty and holds no inverter. Pass a new folder.")
    return False


class _Trainer:
    """Adam over batches, with checkpoints: a resumed training makes the same steps as one that was never killed."""

    def __init__(self, network: Network, settings: InverterTraining, folder: Path, identity: str) -> None:
        self._torch = need("torch", extra="models", what="training an inverter")
        self._network, self._settings, self._identity = network, settings, identity
        self.checkpoint = folder / _CHECKPOINT
        self._optimizer = self._torch.optim.AdamW(network.parameters, lr=settings.learning_rate, weight_decay=0.0)
        self._step, self._seconds = 0, 0.0
        self._before: float | None = None
        self._recent = math.nan

    def run(self, texts: Examples, held_out: Examples) -> dict[str, Any]:
        """Train and return the figures."""
        self._resume()
        if self._before is None and len(held_out.tokens):
            self._before = self._network.mean_loss(held_out)
        settings, limit = self._settings, 60 * (self._settings.minutes or math.inf)
        bar = progress_bar(total=settings.steps, initial=self._step, unit="step", desc="Training the inverter")
        with bar:
            while self._step < settings.steps and self._seconds < limit:
                started = time.perf_counter()
                loss = self._one_step(texts, limit)
                self._recent = loss if math.isnan(self._recent) else 0.98 * self._recent + 0.02 * loss
                self._step += 1
                self._seconds += time.perf_counter() - started
                bar.update(1)
                bar.set_postfix({"loss": f"{self._recent:.3f}"}, refresh=False)
                if self._step % _LOG_STEPS == 0:
                    logger.info("step %d: loss %.4f after %.0f s", self._step, self._recent, self._seconds)
                if self._step % settings.checkpoint_steps == 0:
                    self._save()
        self._save()  # what comes next may be killed before the inverter is whole
        after = self._network.mean_loss(held_out) if len(held_out.tokens) else None
        return {
            "steps_made": self._step,
            "seconds": round(self._seconds, 3),
            "training_loss": self._recent,
            "held_out_loss_before": self._before,
            "held_out_loss": after,
            "held_out_texts": len(held_out.tokens),
        }

    def _one_step(self, texts: Examples, limit: float) -> float:
        """Learn from one batch and return its loss."""
        settings = self._settings
        done = max(self._step / settings.steps, self._seconds / limit)
        rate = settings.learning_rate * min(1.0, (self._step + 1) / _WARM_UP)
        for group in self._optimizer.param_groups:
            group["lr"] = rate * max(_LEAST_RATE, 1 - done)
        rows = texts.batch(self._step, settings.batch_size, settings.seed)
        noise = self._torch.Generator().manual_seed(public_seed(settings.seed, "noise", self._step))
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._network.loss(texts, rows, noise, settings.noise_std)
        loss.backward()
        self._torch.nn.utils.clip_grad_norm_(self._network.parameters, 1.0)
        self._optimizer.step()
        return float(loss.detach())

    def _save(self) -> None:
        content = {
            "identity": self._identity,
            "step": self._step,
            "figures": [self._seconds, math.nan if self._before is None else self._before, self._recent],
            "parameters": [parameter.detach() for parameter in self._network.parameters],
            "optimizer": self._optimizer.state_dict(),
        }
        buffer = io.BytesIO()
        self._torch.save(content, buffer)
        replace_file(self.checkpoint, buffer.getvalue())

    def _resume(self) -> None:
        """Go on from the checkpoint, if there is one."""
        if not self.checkpoint.exists():
            return
        try:
            content = self._torch.load(self.checkpoint, weights_only=True)
        except (RuntimeError, OSError, ValueError, EOFError, KeyError) as error:
            raise AssetError(f"{self.checkpoint} cannot be read ({type(error).__name__}); delete it.") from error
        if content["identity"] != self._identity:
            raise ResumeMismatch(
                f"{self.checkpoint} is of other texts, models or settings. Pass another folder, or delete it."
            )
        for parameter, held in zip(self._network.parameters, content["parameters"], strict=True):
            parameter.data.copy_(held)
        self._optimizer.load_state_dict(content["optimizer"])
        self._step = content["step"]
        self._seconds, before, self._recent = content["figures"]
        self._before = None if math.isnan(before) else before


def deal(texts: Sequence[str], share: float, seed: int) -> tuple[list[str], list[str]]:
    """Deal distinct public texts to training and held-out text.

    Args:
        texts (`Sequence[str]`): public texts; blank ones and copies are left out.
        share (`float`): the share that is held out, above 0 and below 1.
        seed (`int`): the seed of the public choice.
    Returns:
        `tuple[list[str], list[str]]`: texts to train on, and texts held out, at least one each.
    Raises:
        ConfigError: the share is out of range, or there are fewer than two texts.
    """
    known = distinct_texts(texts)
    if not 0 < share < 1:
        raise ConfigError(f"the held-out share is {share}; it is above 0 and below 1")
    if len(known) < 2:
        raise ConfigError(f"there is {len(known)} distinct public text; two or more can be dealt")
    count = min(max(1, round(share * len(known))), len(known) - 1)
    order = public_generator(seed, "held out").permutation(len(known))
    chosen = set(order[:count].tolist())
    return [text for row, text in enumerate(known) if row not in chosen], [known[row] for row in sorted(chosen)]
