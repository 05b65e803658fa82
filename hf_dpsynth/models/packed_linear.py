"""Linear layers whose weights are laid out for the processor once, instead of at every call.

Generation multiplies a few rows by the same weights thousands of times. oneDNN, the library below the CPU products of
torch, can keep weights in the layout it computes in; the compiler of torch uses the same two operations.
"""

from typing import Any

from hf_dpsynth.extras import need

_ROWS_TYPICAL = 64


def pack_linear_layers(model: Any) -> int:
    """Replace every linear layer of a model on the CPU by one with packed weights.

    The model computes the same products (bit for bit in bfloat16; in float32 sums may be ordered otherwise) and can no
    longer be trained or saved. Weights that are shared with an embedding stay there too.

    Args:
        model (`torch.nn.Module`): a model on the CPU, in float32 or bfloat16.
    Returns:
        `int`: number of layers replaced; 0 where torch was built without oneDNN.
    """
    torch = need("torch", extra="models", what="CausalLM")
    if not torch.backends.mkldnn.is_available():
        return 0

    class PackedLinear(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        """Multiplies by weights in oneDNN's own layout."""

        def __init__(self, linear: Any) -> None:
            super().__init__()
            self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS_TYPICAL)
            self.bias = None if linear.bias is None else linear.bias.detach()

        def forward(self, inputs: Any) -> Any:
            """Return inputs times weights, plus the bias."""
            return torch.ops.mkldnn._linear_pointwise(inputs, self.packed, self.bias, "none", [], "")

    linears = [(name, module) for name, module in model.named_modules() if type(module) is torch.nn.Linear]
    for name, linear in linears:
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, PackedLinear(linear))
    return len(linears)
