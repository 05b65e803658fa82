"""Per-example gradients: one autograd call an example, or the hooks of Opacus for a micro-batch at a time.

The one rule: row i is the gradient of example i's own loss, whoever stands beside it. Both engines take losses as a
vector with one entry an example and never reduce it before the gradients are apart. `hooks` is faster, because a
device computes many rows at once; `loop` needs the memory of one example and takes any layer.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from hf_dpsynth.errors import ConfigError, HfDpsynthError, PrivacyError
from hf_dpsynth.extras import need
from hf_dpsynth.logging import get_logger

if TYPE_CHECKING:
    import torch

    Losses = Callable[[Sequence[Any]], torch.Tensor]

_TOLERANCE, _ROUGH_TOLERANCE = 1e-3, 0.1  # of the largest gradient; the second one where bfloat16 rounds
_LARGEST_HELD = 2**30  # bytes of per-example gradients

logger = get_logger(__name__)


class Engine(Protocol):
    """Computes per-example gradients of the trainable parameters of a model."""

    name: str
    parameters: list["torch.nn.Parameter"]

    def gradients(self, examples: Sequence[Any]) -> Iterator[list["torch.Tensor"]]:
        """Yield, micro-batch by micro-batch, for each parameter the gradients of shape (b, *shape). Sensitive."""
        ...

    def close(self) -> None:
        """Take everything off the model that the engine put on it."""
        ...


def engine(name: str, model: "torch.nn.Module", losses: "Losses", *, micro_batch_size: int) -> Engine:
    """Return an engine for the trainable parameters of a model.

    Args:
        name (`str`): `"loop"`, `"hooks"`, or `"auto"`: hooks, unless the gradients of a micro-batch need more than
            1 GiB; `checked_engine` takes the loop also where hooks do not fit the model, and says so.
        model (`torch.nn.Module`): the model, on its device.
        losses (`Callable`): examples -> their losses, shape (b,), through the model.
        micro_batch_size (`int`): examples that `hooks` computes together.
    Raises:
        ConfigError: an unknown engine, or a model without trainable parameters.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise ConfigError("the model has no trainable parameter")
    if name == "auto":
        held = micro_batch_size * sum(4 * parameter.numel() for parameter in parameters)
        name = "loop" if held > _LARGEST_HELD else "hooks"
    if name == "loop":
        model.eval()  # statistics of a batch stay what they were, dropout stays off
        return Loop(parameters, losses)
    if name == "hooks":
        return Hooks(model, parameters, losses, micro_batch_size=micro_batch_size)
    raise ConfigError(f"engine is {name!r}; it is 'auto', 'loop' or 'hooks'")


class Loop:
    """One autograd call an example: exact for every model, in the memory of one example.

    Exact under gradient checkpointing too, which transformers applies in training mode alone, so not here.
    """

    name = "loop"

    def __init__(self, parameters: list["torch.nn.Parameter"], losses: "Losses") -> None:
        self.parameters, self._losses = parameters, losses

    def gradients(self, examples: Sequence[Any]) -> Iterator[list["torch.Tensor"]]:
        """Yield the gradients of one example at a time, each of shape (1, *shape)."""
        torch = need("torch", extra="models", what="per-example gradients")
        for example in examples:
            loss = _one_each(self._losses([example]), 1)[0]
            found = torch.autograd.grad(loss, self.parameters, allow_unused=True)
            yield [
                torch.zeros_like(parameter)[None] if gradient is None else gradient[None]
                for gradient, parameter in zip(found, self.parameters, strict=True)
            ]

    def close(self) -> None:
        """Nothing was put on the model."""


class Hooks:
    """The grad samplers of Opacus, for a micro-batch at a time; halves it when memory runs out.

    Args:
        model (`torch.nn.Module`): the model; hooks are put on it until `close`.
        parameters (`list`): its trainable parameters.
        losses (`Callable`): examples -> their losses, shape (b,).
        micro_batch_size (`int`): examples at a time.
    """

    name = "hooks"

    def __init__(
        self,
        model: "torch.nn.Module",
        parameters: list["torch.nn.Parameter"],
        losses: "Losses",
        *,
        micro_batch_size: int,
    ) -> None:
        if not micro_batch_size >= 1:
            raise ConfigError(f"micro_batch_size is {micro_batch_size}; it is at least 1")
        if any(getattr(module, "gradient_checkpointing", False) for module in model.modules()):
            raise ConfigError(
                "hooks see no gradients under gradient checkpointing. Use engine='loop', or switch it off."
            )
        samplers = need("opacus.grad_sample.grad_sample_module", extra="finetune", what="engine='hooks'")
        _hear(model)
        self.parameters, self.micro_batch_size = parameters, micro_batch_size
        self._model, self._losses = model, losses
        try:
            self._hooks = samplers.GradSampleHooks(model, loss_reduction="sum", strict=False)
        except NotImplementedError as error:
            for handle in vars(model).pop("autograd_grad_sample_hooks", ()):
                handle.remove()
            raise ConfigError(f"{_unsupported(model)}: engine='hooks' has no gradients for it. Use 'loop'.") from error

    def gradients(self, examples: Sequence[Any]) -> Iterator[list["torch.Tensor"]]:
        """Yield the gradients of a micro-batch at a time, each of shape (b, *shape)."""
        torch = need("torch", extra="models", what="per-example gradients")
        start = 0
        while start < len(examples):
            chunk = examples[start : start + self.micro_batch_size]
            try:
                found = self._chunk(chunk)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error) or len(chunk) == 1:
                    raise
                self._clear()
                self.micro_batch_size = max(1, self.micro_batch_size // 2)
                logger.warning("out of memory: micro_batch_size is now %d", self.micro_batch_size)
                continue
            start += len(chunk)
            yield found

    def _chunk(self, chunk: Sequence[Any]) -> list["torch.Tensor"]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook is firing")  # the first layer is fed numbers
            _one_each(self._losses(chunk), len(chunk)).sum().backward()
        found = [self._sample(parameter, len(chunk)) for parameter in self.parameters]
        self._clear()
        return found

    def _sample(self, parameter: "torch.nn.Parameter", count: int) -> "torch.Tensor":
        sample = getattr(parameter, "grad_sample", None)
        if sample is None or isinstance(sample, list) or sample.shape != (count, *parameter.shape):
            shape = None if sample is None or isinstance(sample, list) else tuple(sample.shape)
            raise PrivacyError(
                f"a parameter of shape {tuple(parameter.shape)} has per-example gradients of shape {shape} for "
                f"{count} examples. Use engine='loop'."
            )
        found: torch.Tensor = sample
        return found

    def _clear(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None
            parameter.grad_sample = None  # type: ignore[attr-defined, unused-ignore]
            parameter._forward_counter = 0  # type: ignore[attr-defined, unused-ignore]
            vars(parameter).pop("_current_grad_sample", None)
        for module in self._model.modules():  # what a pass that was cut short left behind
            for name in ("activations", "max_batch_len"):
                vars(module).pop(name, None)

    def close(self) -> None:
        """Take the hooks off the model."""
        self._clear()
        self._hooks.cleanup()


def _unsupported(model: "torch.nn.Module") -> str:
    """Name the layers that keep buffers beside trainable parameters."""
    names = {
        type(module).__name__
        for module in model.modules()
        if any(True for _ in module.buffers(recurse=False))
        and any(parameter.requires_grad for parameter in module.parameters(recurse=False))
    }
    return f"layer {', '.join(sorted(names)) or 'of this model'}"


def _hear(model: "torch.nn.Module") -> None:
    """Put the layers that train in training mode, without which the hooks of Opacus look away; dropout stays off."""
    model.eval()
    for module in model.modules():
        if any(parameter.requires_grad for parameter in module.parameters(recurse=False)):
            module.training = True


def _one_each(losses: "torch.Tensor", count: int) -> "torch.Tensor":
    if losses.shape != (count,):
        raise PrivacyError(f"losses have shape {tuple(losses.shape)}; one for each of {count} examples is needed")
    return losses


def _is_out_of_memory(error: BaseException) -> bool:
    return type(error).__name__ == "OutOfMemoryError" or "allocate memory" in str(error)


def checked_engine(
    name: str,
    model: "torch.nn.Module",
    losses: "Losses",
    examples: Sequence[Any],
    *,
    micro_batch_size: int,
    rough: bool = False,
) -> Engine:
    """Return an engine after its gradients of public examples were compared with plain autograd.

    Args:
        name (`str`): `"loop"`, `"hooks"` or `"auto"`.
        model (`torch.nn.Module`): the model, on its device.
        losses (`Callable`): examples -> their losses, shape (b,).
        examples (`Sequence`): a few public examples.
        micro_batch_size (`int`): examples that `hooks` computes together.
        rough (`bool`): whether products are rounded to bfloat16.
    Raises:
        ConfigError: an unknown engine, or a model without trainable parameters.
        PrivacyError: a gradient differs, or all of them are zero.
    """
    make = partial(engine, model=model, losses=losses, micro_batch_size=micro_batch_size)
    try:
        check(make(name), losses, examples, rough=rough)
    except HfDpsynthError as error:
        if name != "auto":
            raise
        logger.warning("engine='auto' takes the loop, because hooks do not fit this model: %s", error)
        name = "loop"
        check(make(name), losses, examples, rough=rough)
    return make(name)


def check(fast: Engine, losses: "Losses", examples: Sequence[Any], *, rough: bool = False) -> None:
    """Compare an engine's gradients of a batch with plain autograd of each example alone.

    Catches layers that couple the records of a batch, and libraries that silently train nothing.

    Args:
        fast (`Engine`): the engine; it is closed.
        losses (`Callable`): examples -> their losses.
        examples (`Sequence`): a few examples; public ones, since an error depends on them.
        rough (`bool`): whether products are rounded to bfloat16.
    Raises:
        PrivacyError: a gradient differs, or all of them are zero.
    """
    torch = need("torch", extra="models", what="per-example gradients")
    together = _together(fast, examples)
    alone = [torch.cat(parts) for parts in zip(*Loop(fast.parameters, losses).gradients(examples), strict=True)]
    largest = max(float(gradient.abs().max()) for gradient in alone)
    worst = max(float((a - b).abs().max()) for a, b in zip(together, alone, strict=True))
    if not largest > 0:
        raise PrivacyError("every gradient is zero: the model would train nothing")
    if not worst <= (_ROUGH_TOLERANCE if rough else _TOLERANCE) * largest:
        raise PrivacyError(
            f"engine={fast.name!r} gives gradients that differ from those of each example alone by "
            f"{worst / largest:.3g} of the largest. This model couples the records of a batch, or its "
            "layers are not supported: use engine='loop', or another model."
        )


def _together(fast: Engine, examples: Sequence[Any]) -> list["torch.Tensor"]:
    """Return an engine's gradients of public examples, and close it."""
    torch = need("torch", extra="models", what="per-example gradients")
    try:
        return [torch.cat(parts) for parts in zip(*fast.gradients(examples), strict=True)]
    except HfDpsynthError:
        raise
    except Exception as error:  # the examples are public, and libraries raise anything for layers they do not know
        raise ConfigError(
            f"engine={fast.name!r} fails on this model with {type(error).__name__}: {error}. Use engine='loop'."
        ) from error
    finally:
        fast.close()
