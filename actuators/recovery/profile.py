"""What a layer of the model costs, and what a node of the cluster gives: the figures that every estimate stands on."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pacehound.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """A model of equal layers on one node; all of it is measured, or reckoned from the model's shape.

    A node is what fails together: one device, or the devices of one tensor-parallel group. Its bytes and times are
    those of all of them.

    Attributes
    ----------
    forward_s, backward_s
        Of one layer and one micro-batch: T_f and T_b of Odyssey, equation 9, for one layer.
    parameter_bytes, optimizer_bytes, gradient_bytes
        Of one layer: m_p, m_o and m_g of equation 14.
    activation_bytes
        What one micro-batch leaves in one layer until its backward pass: m_a.
    boundary_bytes
        What a stage hands to the next one for a micro-batch.
    head_layers, embedding_layers
        What comes after the last layer and before the first, in layers: the head in time and memory, the embedding in
        memory alone (a look-up takes no time to speak of). The paper leaves both out.
    samples_per_micro_batch
        For a throughput in samples.

    """

    name: str
    n_layers: int
    forward_s: float
    backward_s: float
    parameter_bytes: float
    optimizer_bytes: float
    gradient_bytes: float
    activation_bytes: float
    boundary_bytes: float = 0.0
    head_layers: float = 0.0
    embedding_layers: float = 0.0
    samples_per_micro_batch: int = 1

    def __post_init__(self) -> None:
        for name in ("n_layers", "forward_s", "backward_s", "parameter_bytes", "samples_per_micro_batch"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"model {self.name} has {name}={getattr(self, name)}; it must be above 0")
        _not_negative(self, f"model {self.name}")

    @property
    def layer_s(self) -> float:
        """Forward and backward of one layer and one micro-batch."""
        return self.forward_s + self.backward_s

    @property
    def static_bytes(self) -> float:
        """What a layer holds throughout."""
        return self.parameter_bytes + self.optimizer_bytes + self.gradient_bytes

    @property
    def state_bytes(self) -> float:
        """What moves with a layer: gradients are computed anew."""
        return self.parameter_bytes + self.optimizer_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterProfile:
    """What a node has, and what a change of plan costs besides the transfer.

    Attributes
    ----------
    memory_bytes
        Of a node.
    bandwidth_bytes_per_s, latency_s
        Between two nodes, in each direction.
    restart_s
        Of a job with a new plan: process groups, buffers, the first step.
    reroute_s
        Of a job that goes on with the same plan and fewer nodes.
    checkpoint_bytes_per_s
        At which a node reads its layers from storage; 0 where there is no checkpoint.
    checkpoint_age_s
        Work that is lost by going back to it.

    """

    memory_bytes: float
    bandwidth_bytes_per_s: float
    latency_s: float = 0.0
    restart_s: float
    reroute_s: float
    checkpoint_bytes_per_s: float = 0.0
    checkpoint_age_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("memory_bytes", "bandwidth_bytes_per_s"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"a cluster has {name}={getattr(self, name)}; it must be above 0")
        _not_negative(self, "a cluster")


def _not_negative(profile: ModelProfile | ClusterProfile, whose: str) -> None:
    for field in fields(profile):
        value = getattr(profile, field.name)
        if not isinstance(value, str) and not 0 <= value < float("inf"):
            raise InvalidInput(f"{whose} has {field.name}={value}; it must be a number from 0 on")
