"""Models by name: their sizes are those that are published."""

from __future__ import annotations

import pytest

from actuators.recovery.models import DEVICES, SHAPES, named_shape, profile_of
from actuators.recovery.profile import ClusterProfile, ModelProfile
from pacehound.errors import InvalidInput

PUBLISHED = {
    "gpt2-xl": 1.56e9, "gpt3-175b": 175e9, "llama2-7b": 6.74e9, "llama2-13b": 13.0e9, "llama2-70b": 69e9,
    "llama3-8b": 8.03e9, "llama3-70b": 70.6e9, "llama3-405b": 405.9e9,
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_has_as_many_weights_as_its_name_says(name: str) -> None:
    shape = SHAPES[name]
    embeddings = (1 if name.startswith("gpt") else 2) * shape.vocabulary * shape.hidden
    assert shape.n_layers * shape.layer_weights + embeddings == pytest.approx(PUBLISHED[name], rel=0.02)


def test_a_layer_of_llama_2_7b_takes_six_operations_for_each_weight_and_token() -> None:
    flops = DEVICES["910b"].flops
    one = profile_of("llama2-7b", flops=flops, sequence=2048, utilisation=0.5)
    assert one.layer_s * flops * 0.5 / 2048 / 6 == pytest.approx(202_375_168, rel=0.05)
    assert one.static_bytes == 16 * 202_375_168


def test_a_micro_batch_of_four_takes_four_times_as_long() -> None:
    one, four = (profile_of("gpt2", flops=1e12, micro_batch=n) for n in (1, 4))
    assert four.forward_s == pytest.approx(4 * one.forward_s)
    assert four.samples_per_micro_batch == 4


def test_an_unknown_model_is_told_what_may_have_been_meant() -> None:
    with pytest.raises(InvalidInput, match="did you mean llama2-7b"):
        named_shape("lama2-7b")
    with pytest.raises(InvalidInput, match="known are gpt2"):
        named_shape("something")


def test_a_profile_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="n_layers=0"):
        ModelProfile(
            name="none", n_layers=0, forward_s=1.0, backward_s=1.0, parameter_bytes=1.0, optimizer_bytes=0.0,
            gradient_bytes=0.0, activation_bytes=0.0,
        )  # fmt: skip
    with pytest.raises(InvalidInput, match=r"latency_s=-1\.0"):
        ClusterProfile(memory_bytes=1.0, bandwidth_bytes_per_s=1.0, latency_s=-1.0, restart_s=0.0, reroute_s=0.0)
