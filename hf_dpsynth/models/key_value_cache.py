"""A key-value cache with spare room: a step writes one column where transformers' own cache copies everything.

The layer is a `transformers.cache_utils.DynamicLayer` in all else, so any causal model of transformers takes it.
"""

import functools
from typing import Any

from hf_dpsynth.extras import need


def growing_cache(config: Any, room: int) -> tuple[Any, bool]:
    """Return a cache whose full-attention layers have room for `room` tokens after the prompt.

    Args:
        config (`transformers.PreTrainedConfig`): the model's configuration, which lists the kinds of its layers.
        room (`int`): tokens that will be generated.
    Returns:
        `tuple[transformers.Cache, bool]`: the cache, and whether every layer attends to everything, so that padding
        between a shared prefix and the rest of a prompt is harmless.
    """
    need("torch", extra="models", what="CausalLM")
    from transformers.cache_utils import DynamicCache, DynamicLayer

    cache = DynamicCache(config=config)
    plain = [type(layer) is DynamicLayer for layer in cache.layers]
    layer_class = _layer_class()
    cache.layers = [
        layer_class(room) if is_plain else layer for layer, is_plain in zip(cache.layers, plain, strict=True)
    ]
    return cache, bool(plain) and all(plain)


@functools.cache
def _layer_class() -> Any:
    """Define the layer; inside a function because importing its base class imports torch."""
    from transformers.cache_utils import DynamicLayer

    class GrowingLayer(DynamicLayer):  # type: ignore[misc, unused-ignore]
        """Keys and values as views of larger buffers."""

        def __init__(self, room: int) -> None:
            super().__init__()
            self._room = room
            self._buffers: list[Any] = []

        def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
            """Append keys and values."""
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
                self._show([key_states[:, :, :0], value_states[:, :, :0]], 0)
            old, new = self.keys.shape[2], self.keys.shape[2] + key_states.shape[2]
            buffers = self._buffers
            if new > buffers[0].shape[2]:
                buffers = [_enlarged(kept, new + self._room) for kept in (self.keys, self.values)]
            for buffer, states in zip(buffers, (key_states, value_states), strict=True):
                buffer[:, :, old:new] = states
            self._show(buffers, new)
            return self.keys, self.values

        def batch_select_indices(self, indices: Any) -> None:
            """Keep some rows, which `indices` lists in ascending order, in place."""
            rows, length = len(indices), self.keys.shape[2]
            for buffer in self._buffers:
                buffer[:rows, :, :length] = buffer[indices, :, :length]
            self._show([buffer[:rows] for buffer in self._buffers], length)

        def batch_repeat_interleave(self, repeats: int) -> None:
            """Repeat each row; room is made at the next update."""
            tiled = [states.repeat_interleave(repeats, dim=0) for states in (self.keys, self.values)]
            self._show(tiled, self.keys.shape[2])

        def _show(self, buffers: list[Any], length: int) -> None:
            self._buffers = buffers
            self.keys, self.values = (buffer[:, :, :length] for buffer in buffers)

    return GrowingLayer


def _enlarged(states: Any, length: int) -> Any:
    """Return a buffer of some length that begins with these keys or values."""
    buffer = states.new_empty((*states.shape[:2], length, states.shape[3]))
    buffer[:, :, : states.shape[2]] = states
    return buffer
