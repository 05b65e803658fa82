"""What is trained of a causal language model: low-rank updates, a soft prompt, or all of it; saved as others load it.

Initial values come from the public seed, so that a resumed run starts from the same point. Low-rank updates and
prompts are saved as plain adapters of peft, a whole model as transformers saves it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_dpsynth.compute.token_loss import frozen_head
from hf_dpsynth.devices import Devices, best_dtype
from hf_dpsynth.extras import need
from hf_dpsynth.mechanisms.finetune.prefix_lm import PrefixLoss
from hf_dpsynth.models.adapters import fill, low_rank, with_virtual
from hf_dpsynth.models.catalog import models
from hf_dpsynth.models.causal_lm import load_pretrained
from hf_dpsynth.privacy.keys import public_seed

if TYPE_CHECKING:
    import torch

_WHAT = "fine-tuning"
_PROMPT_RANGE = 0.01


class Trainable:
    """A base model and the part of it that is trained.

    Args:
        name (`str`): the base model: a short name, a local folder or a Hub id.
        method (`str`): `"lora"`, `"prompt-tuning"` or `"full"`.
        rank (`int`): rank of the low-rank updates.
        target_modules (`str` or `Sequence[str]`): which linear layers get one.
        prompt_length (`int`): virtual tokens of a soft prompt.
        dtype (`str`, *optional*): precision of the products; the fastest one of the device when missing.
        seed (`int`): the seed of public randomness.
    Raises:
        AssetError: the model could not be fetched or loaded.
        ConfigError: it has no such layers.
    """

    def __init__(
        self,
        name: str,
        *,
        method: str,
        rank: int = 8,
        target_modules: str | Sequence[str] = "all-linear",
        prompt_length: int = 20,
        dtype: str | None = None,
        seed: int = 0,
    ) -> None:
        self._torch = need("torch", extra="models", what=_WHAT)
        self.name, self.method, self.seed = name, method, seed
        devices = Devices.current()
        devices.limit_threads()
        self.device = devices.torch_device()
        self.rough = (dtype or best_dtype(self.device)) == "bfloat16"
        # frozen weights lie in the precision of the products; weights that are trained stay in float32
        self.model, self.tokenizer = load_pretrained(
            name, "bfloat16" if self.rough and method != "full" else "float32"
        )
        self.model.to(self.device).eval()
        self._attention = self.model.config._attn_implementation
        if self.rough and self.device.type == "cpu":
            # measured: for bfloat16 on a CPU the fused attention of torch is slow to differentiate
            self.model.set_attn_implementation("eager")
        self.prompt: Any = None
        if method == "full":
            self.module = self.model.requires_grad_(True)
        elif method == "lora":
            self.module = self.model = self._low_rank(rank, target_modules)
        else:
            self.module = self._soft_prompt(prompt_length)
        self.losses = PrefixLoss(
            self.model,
            virtual=None if self.prompt is None else self._virtual,
            autocast=self.rough,
            head=frozen_head(self.model, autocast=self.rough),
        )

    @property
    def base_id(self) -> str:
        """The base model as others load it: a Hub id, or the folder that the user named."""
        sources = {asset.name: asset.source for asset in models()}
        return sources.get(self.name, self.name).removeprefix("https://huggingface.co/")

    @property
    def parameters(self) -> list["torch.nn.Parameter"]:
        """The parameters that are trained, in a fixed order."""
        return [parameter for parameter in self.module.parameters() if parameter.requires_grad]

    def _low_rank(self, rank: int, target_modules: str | Sequence[str]) -> Any:
        return low_rank(
            self.model,
            rank=rank,
            target_modules=target_modules,
            generator=self._generator(),
            rough=self.rough,
            name=self.name,
            what="dp-lora",
        )

    def _soft_prompt(self, length: int) -> Any:
        torch = self._torch
        self.model.requires_grad_(False)
        width = self.model.get_input_embeddings().weight.shape[1]
        self.prompt = torch.nn.Embedding(length, width, device=self.device, dtype=torch.float32)
        fill(self.prompt.weight, _PROMPT_RANGE, self._generator())
        return torch.nn.ModuleDict({"model": self.model, "prompt": self.prompt})

    def _virtual(self, count: int) -> "torch.Tensor":
        """Return the prompt's embeddings for each example, shape (count, v, d)."""
        # expanded before the layer, so that a grad sampler sees one prompt an example
        tokens = self._torch.arange(self.prompt.num_embeddings, device=self.device)
        found: torch.Tensor = self.prompt(tokens.unsqueeze(0).expand(count, -1).contiguous())
        return found

    def _generator(self) -> Any:
        return self._torch.Generator().manual_seed(public_seed(self.seed, "initial parameters"))

    def state(self) -> list["torch.Tensor"]:
        """Return copies of the trained parameters."""
        return [parameter.detach().clone() for parameter in self.parameters]

    def restore(self, state: Sequence["torch.Tensor"]) -> None:
        """Put copied parameters back."""
        for parameter, held in zip(self.parameters, state, strict=True):
            parameter.data.copy_(held)

    def save(self, folder: Path) -> None:
        """Write what was trained as peft or transformers load it. Released with noise, so public.

        Args:
            folder (`Path`): an empty folder.
        """
        if self.method == "full":
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        elif self.method == "lora":
            self.model.peft_config["default"].base_model_name_or_path = self.base_id
            self.model.save_pretrained(folder, save_embedding_layers=False)
        else:
            peft, files = (need(name, extra="finetune", what=_WHAT) for name in ("peft", "safetensors.torch"))
            config = peft.PromptTuningConfig(
                task_type="CAUSAL_LM",
                num_virtual_tokens=self.prompt.num_embeddings,
                base_model_name_or_path=self.base_id,
                inference_mode=True,
            )
            config.save_pretrained(folder)
            weights = {"prompt_embeddings": self.prompt.weight.detach().contiguous().cpu()}
            files.save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})

    def read(self, folder: Path) -> list["torch.Tensor"]:
        """Return the parameters that `save` wrote, in the order of `parameters`.

        Raises:
            AssetError: the files are not what was written.
        """
        if self.method == "full":
            model, _ = load_pretrained(str(folder), "float32")
            return [parameter.detach() for parameter in model.parameters()]
        files = need("safetensors.torch", extra="finetune", what=_WHAT)
        held = files.load_file(folder / "adapter_model.safetensors")
        if self.method == "prompt-tuning":
            return [held["prompt_embeddings"]]
        names = [name for name, parameter in self.module.named_parameters() if parameter.requires_grad]
        return [held[name.replace(".default.", ".")] for name in names]

    def for_generation(self) -> tuple[Any, int, int]:
        """Return the tuned model for sampling, and the first number and the count of its virtual tokens.

        The trainable is used up: low-rank updates are merged into the weights.
        """
        torch = self._torch
        if self.method == "lora":
            self.model = self.model.float().merge_and_unload()
        self.model.set_attn_implementation(self._attention)
        first, count = 0, 0
        if self.prompt is not None:
            words = self.model.get_input_embeddings()
            first, count = int(words.weight.shape[0]), int(self.prompt.num_embeddings)
            self.model.set_input_embeddings(with_virtual(words, self.prompt))
        chosen = getattr(torch, "bfloat16" if self.rough else "float32")
        return self.model.requires_grad_(False).to(chosen).eval(), first, count
