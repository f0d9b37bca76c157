"""A model as a person describes it: by name, or by the numbers that were measured."""

from __future__ import annotations

from actuators.recovery.models import SHAPES, named_shape, profile_of
from actuators.recovery.profile import ModelProfile
from pacehound.errors import InvalidInput, nearest

_MB = 1e6
_MS = 1e-3
NUMBERS = {
    "layers": ("n_layers", 1.0),
    "forward_ms": ("forward_s", _MS),
    "backward_ms": ("backward_s", _MS),
    "parameter_mb": ("parameter_bytes", _MB),
    "optimizer_mb": ("optimizer_bytes", _MB),
    "gradient_mb": ("gradient_bytes", _MB),
    "activation_mb": ("activation_bytes", _MB),
    "boundary_mb": ("boundary_bytes", _MB),
    "head_layers": ("head_layers", 1.0),
    "embedding_layers": ("embedding_layers", 1.0),
}
"""Each is of one layer, of one micro-batch where it depends on that, and of all devices of a node."""
NEEDED = ("layers", "forward_ms", "parameter_mb")


def described(text: str, *, flops: float, sequence: int | None, micro_batch: int) -> ModelProfile:
    """The costs of a model that is named, or described as `layers=32,forward_ms=8,parameter_mb=400`.

    What is not given is what mixed-precision training has: backward twice forward, gradients as large as the weights,
    an optimizer six times as large; activations, boundary, head and embedding nothing.

    >>> model = described("layers=32,forward_ms=8,parameter_mb=400", flops=1e12, sequence=None, micro_batch=1)
    >>> model.n_layers, model.backward_s, model.optimizer_bytes
    (32, 0.016, 2400000000.0)
    """
    if "=" not in text:
        return profile_of(text, flops=flops, sequence=sequence, micro_batch=micro_batch)
    given = dict(_number(part) for part in text.split(","))
    missing = [name for name in NEEDED if name not in given]
    if missing:
        raise InvalidInput(f"--model lacks {', '.join(missing)}; known by name are {', '.join(SHAPES)}")
    if given["layers"] != int(given["layers"]):
        raise InvalidInput(f"--model has layers={given['layers']:g}; give a whole number")
    values = {NUMBERS[name][0]: value * NUMBERS[name][1] for name, value in given.items() if name != "layers"}
    defaults = {
        "backward_s": 2 * values["forward_s"],
        "gradient_bytes": values["parameter_bytes"],
        "optimizer_bytes": 6 * values["parameter_bytes"],
        "activation_bytes": 0.0,
    }
    return ModelProfile(
        name="described", n_layers=int(given["layers"]), samples_per_micro_batch=micro_batch, **(defaults | values)
    )


def _number(part: str) -> tuple[str, float]:
    name, _, value = part.strip().partition("=")
    if name not in NUMBERS:
        near = nearest(name, NUMBERS)
        raise InvalidInput(
            f"--model knows no {name!r}; " + (f"did you mean {near}?" if near else f"{', '.join(NUMBERS)}")
        )
    try:
        return name, float(value)
    except ValueError:
        raise InvalidInput(f"--model has {name}={value!r}; give a number") from None


def sequence_of(text: str) -> int | None:
    """Tokens of a sample of a named model; `None` of one that is described by numbers."""
    return None if "=" in text else named_shape(text).sequence
