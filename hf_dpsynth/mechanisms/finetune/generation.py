"""Sampling from a tuned model: post-processing, at public seeds."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hf_dpsynth.extras import need
from hf_dpsynth.mechanisms.finetune.examples import Encoder, Example
from hf_dpsynth.mechanisms.finetune.prefix_lm import PrefixLoss
from hf_dpsynth.mechanisms.finetune.trainable import Trainable
from hf_dpsynth.models.causal_lm import CausalLM
from hf_dpsynth.privacy.keys import public_seed
from hf_dpsynth.run import Run

if TYPE_CHECKING:
    from hf_dpsynth.mechanisms.finetune.tuning import FineTuning

_BATCH = 64


class TunedModel:
    """A tuned model that writes texts for labels.

    Args:
        trainable (`Trainable`): what was trained; it is used up.
        encoder (`Encoder`): the prefixes of the labels.
        mechanism (`FineTuning`): how to sample.
    """

    block = 256

    def __init__(self, trainable: Trainable, encoder: Encoder, mechanism: "FineTuning") -> None:
        self._mechanism, self._encoder = mechanism, encoder
        self._model, first, count = trainable.for_generation()
        virtual = list(range(first, first + count))
        self._prompts = [virtual + prefix for prefix in encoder.prefixes]
        # likelihoods are computed before the layers are packed for generation
        self._losses = PrefixLoss(self._model)
        self._end = encoder.end
        self._writer = CausalLM.of(
            self._model, trainable.tokenizer, batch_size=_BATCH, top_k=mechanism.top_k, ends=encoder.ends
        )

    def sample(self, labels: Sequence[int], seed: int, start: int, *, stream: str = "sample") -> list[str]:
        """Return a text for each label.

        Args:
            labels (`Sequence[int]`): numbers of labels.
            seed (`int`): the seed of public randomness.
            start (`int`): the number of the first row, which its draws depend on.
            stream (`str`): the name of the public stream.
        """
        decodes = self._mechanism.num_decodes
        prompts = [self._prompts[label] for label in labels for _ in range(decodes)]
        found = self._writer.continued(
            prompts,
            max_new_tokens=self._mechanism.max_new_tokens,
            temperature=self._mechanism.temperature,
            seed=public_seed(seed, stream, start),
        )
        if decodes > 1:
            found = self._likeliest(prompts, found, decodes)
        return [self._encoder.decoded(tokens) for tokens in found]

    def _likeliest(self, prompts: list[list[int]], found: list[list[int]], decodes: int) -> list[list[int]]:
        """Keep, of each group of texts for one row, the one with the highest likelihood, its end included."""
        torch = need("torch", extra="models", what="fine-tuning")
        kept = []
        for start in range(0, len(found), decodes):
            group = range(start, start + decodes)
            examples = [Example([*prompts[row], *self._ended(found[row])], len(prompts[row])) for row in group]
            with torch.inference_mode():
                losses = self._losses(examples).tolist()
            totals = [loss * (len(e.tokens) - e.prefix) for loss, e in zip(losses, examples, strict=True)]
            kept.append(found[start + totals.index(min(totals))])
        return kept

    def _ended(self, tokens: list[int]) -> list[int]:
        return [*tokens, self._end] if len(tokens) < self._mechanism.max_new_tokens else tokens


def written(run: Run, total: int, block: int, sample: Callable[[int, int], list[str]]) -> list[str]:
    """Return the texts of a run, of which the first process writes what is not on disk yet.

    Each process samples one block at a time. A block's draws depend on where it starts, not on who makes it.

    Args:
        run (`Run`): its store and processes.
        total (`int`): the number of texts.
        block (`int`): how many are sampled at a time.
        sample (`Callable[[int, int], list[str]]`): makes the texts from a start to a stop.
    """
    here, store = run.devices, run.store

    def share(start: int, stop: int) -> list[str]:
        first = start + here.rank * block
        return sample(first, min(stop, first + block)) if first < stop else []

    def wave(start: int, stop: int) -> list[str]:
        return [text for made in here.gather(lambda: share(start, stop)) for text in made]

    if here.world_size > 1:  # the others begin where the first one does
        held = here.lead(lambda: store.grow("rows", 0, block, sample))
        store.grow("rows", len(held), max(1, len(held)), lambda start, stop: held[start:stop])
    return store.grow("rows", total, block * here.world_size, wave)
