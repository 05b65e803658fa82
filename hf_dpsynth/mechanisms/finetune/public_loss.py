"""The mean loss on held-out public text, which shows how training goes without a look at a private record.

The model that it is computed from is a function of noisy sums, so this figure is post-processing and as public as the
text. It is never read back: no step, rate, stop or choice of a checkpoint depends on it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.mechanisms.base import PublicInputs
from hf_dpsynth.mechanisms.finetune.examples import Encoder, Example
from hf_dpsynth.plans import Plan
from hf_dpsynth.privacy.keys import public_generator

if TYPE_CHECKING:
    from hf_dpsynth.mechanisms.finetune.prefix_lm import PrefixLoss

MOST_ROWS = 256


def held_out(public: PublicInputs, plan: Plan, encoder: Encoder) -> list[Example]:
    """Return the public rows as examples: at most 256, chosen by the public seed, the shortest first.

    Args:
        public (`PublicInputs`): whose `dataset` holds the rows. Public.
        plan (`Plan`): the label domain and the seed.
        encoder (`Encoder`): the rules that private records are encoded by.
    Returns:
        `list[Example]`: those that have a token to learn; empty without public rows.
    Raises:
        ConfigError: there are public rows, and none has a token to learn.
    """
    rows = public.dataset
    chosen = public_generator(plan.seed, "held-out rows").permutation(len(rows))[:MOST_ROWS]
    numbers = {label: number for number, label in enumerate(plan.labels)}
    examples = [encoder.example(numbers[label], text) for label, text in (rows[row] for row in chosen.tolist())]
    # a chat template has no form for some conversations, whose loss of 0 would be no loss
    found = [example for example in examples if len(example.tokens) > example.prefix]
    if examples and not found:
        raise ConfigError(
            f"public= has no token to learn in the {len(examples)} rows that are used: the model's chat template has "
            "no form for them. Pass conversations that begin with a user or a system, and whose roles take turns."
        )
    return sorted(found, key=lambda example: len(example.tokens))


class PublicLoss:
    """The mean over public examples of the loss that training lowers.

    Args:
        losses (`PrefixLoss`): examples -> their losses, under the model as it is when it is asked.
        examples (`Sequence[Example]`): held-out public examples. Public.
        micro_batch_size (`int`): examples that are computed together.
    """

    def __init__(self, losses: "PrefixLoss", examples: Sequence[Example], micro_batch_size: int) -> None:
        self._losses, self._examples, self._size = losses, examples, micro_batch_size

    def __len__(self) -> int:
        return len(self._examples)

    def __call__(self) -> float:
        """Return the mean loss of an example, without gradients."""
        torch = need("torch", extra="models", what="fine-tuning")
        with torch.no_grad():
            parts = [
                self._losses(self._examples[start : start + self._size]).double().sum().item()
                for start in range(0, len(self._examples), self._size)
            ]
        return float(sum(parts) / len(self._examples))
