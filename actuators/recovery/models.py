"""Models by name: what their layers cost, reckoned from their shapes where nothing has been measured."""

from __future__ import annotations

from dataclasses import dataclass

from actuators.recovery.profile import ModelProfile
from actuators.recovery.thresholds import (
    ACTIVATION_BYTES_PER_VALUE,
    BYTES_PER_WEIGHT,
    OPTIMIZER_BYTES_PER_WEIGHT,
    UTILISATION,
)
from pacehound.errors import InvalidInput, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A transformer's sizes.

    Attributes
    ----------
    key_value
        Width of keys and values: less than `hidden` where query heads share them.
    feed_forward_products
        Matrices of a feed-forward layer: 3 of a gated one, 2 of GPT's.
    sequence
        Tokens of a sample, as it was trained.

    """

    n_layers: int
    hidden: int
    feed_forward: int
    key_value: int
    vocabulary: int
    sequence: int
    feed_forward_products: int = 3

    @property
    def layer_weights(self) -> int:
        """Weights of one layer, norms and biases left out.

        >>> SHAPES["llama2-7b"].layer_weights
        202375168
        """
        attention = 2 * self.hidden * (self.hidden + self.key_value)
        return attention + self.feed_forward_products * self.hidden * self.feed_forward


def _llama(n_layers: int, hidden: int, feed_forward: int, key_value: int, vocabulary: int, sequence: int) -> Shape:
    return Shape(
        n_layers=n_layers,
        hidden=hidden,
        feed_forward=feed_forward,
        key_value=key_value,
        vocabulary=vocabulary,
        sequence=sequence,
    )


def _gpt(n_layers: int, hidden: int, sequence: int) -> Shape:
    return Shape(
        n_layers=n_layers,
        hidden=hidden,
        feed_forward=4 * hidden,
        key_value=hidden,
        vocabulary=50_257,
        sequence=sequence,
        feed_forward_products=2,
    )


SHAPES = {
    "gpt2": _gpt(12, 768, 1024),
    "gpt2-xl": _gpt(48, 1600, 1024),
    "gpt3-175b": _gpt(96, 12_288, 2048),
    "llama2-7b": _llama(32, 4096, 11_008, 4096, 32_000, 4096),
    "llama2-13b": _llama(40, 5120, 13_824, 5120, 32_000, 4096),
    "llama2-70b": _llama(80, 8192, 28_672, 1024, 32_000, 4096),
    "llama3-8b": _llama(32, 4096, 14_336, 1024, 128_256, 8192),
    "llama3-70b": _llama(80, 8192, 28_672, 1024, 128_256, 8192),
    "llama3-405b": _llama(126, 16_384, 53_248, 1024, 128_256, 8192),
}
"""As their papers and published configurations have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What a data sheet says of one: dense bf16 operations a second, and memory."""

    flops: float
    memory_bytes: float


DEVICES = {
    "a100-40": Device(flops=312e12, memory_bytes=40 * 2**30),
    "a100-80": Device(flops=312e12, memory_bytes=80 * 2**30),
    "h100": Device(flops=989e12, memory_bytes=80 * 2**30),
    "h200": Device(flops=989e12, memory_bytes=141e9),
    "910b": Device(flops=313e12, memory_bytes=64 * 2**30),
}
"""910b: Odyssey V-A names its memory; its speed is a figure of the trade press (313 TFLOPS in half precision)."""


def named_shape(name: str) -> Shape:
    """The sizes of a model that is known by name."""
    if name not in SHAPES:
        near = nearest(name, SHAPES)
        hint = f"; did you mean {near}?" if near else f"; known are {', '.join(SHAPES)}"
        raise InvalidInput(f"no model is called {name!r}{hint}")
    return SHAPES[name]


def profile_of(
    name: str, *, flops: float, sequence: int | None = None, micro_batch: int = 1, utilisation: float = UTILISATION
) -> ModelProfile:
    """What its layers cost on a node of so many operations a second.

    Formula
    -------
    A layer of W weights computes 2 W + 2 s h operations for each token of a sequence of s (causal attention sees half
    of it), and twice that backward; its memory is W times the bytes of each weight.

    >>> model = profile_of("llama2-7b", flops=313e12)
    >>> round(1e3 * model.layer_s, 1), round(model.static_bytes / 1e9, 2), round(model.head_layers, 2)
    (43.0, 3.24, 0.65)
    """
    shape = named_shape(name)
    tokens_each = sequence or shape.sequence
    tokens = tokens_each * micro_batch
    weights = shape.layer_weights
    forward_s = tokens * (2 * weights + 2 * tokens_each * shape.hidden) / (flops * utilisation)
    return ModelProfile(
        name=name,
        n_layers=shape.n_layers,
        forward_s=forward_s,
        backward_s=2 * forward_s,
        parameter_bytes=weights * BYTES_PER_WEIGHT,
        optimizer_bytes=weights * OPTIMIZER_BYTES_PER_WEIGHT,
        gradient_bytes=weights * BYTES_PER_WEIGHT,
        activation_bytes=ACTIVATION_BYTES_PER_VALUE * tokens * shape.hidden,
        boundary_bytes=tokens * shape.hidden * BYTES_PER_WEIGHT,
        head_layers=shape.vocabulary * shape.hidden / weights,
        embedding_layers=shape.vocabulary * shape.hidden / weights,
        samples_per_micro_batch=micro_batch,
    )


def unit_model(*, n_layers: int, head_layers: float = 0.0) -> ModelProfile:
    """A model to reckon with by hand: a layer takes one second forward and two backward, and weighs one byte."""
    return ModelProfile(
        name="unit",
        n_layers=n_layers,
        forward_s=1.0,
        backward_s=2.0,
        parameter_bytes=1.0,
        optimizer_bytes=0.0,
        gradient_bytes=0.0,
        activation_bytes=0.0,
        head_layers=head_layers,
    )
