"""What is wrong with a GPU, in sentences, and what is not."""

from __future__ import annotations

from pacehound.model.events import GpuReading, HostVitals
from streams.slow.gpu_state import GpuStates


def states(*readings: GpuReading) -> GpuStates:
    made = GpuStates()
    for reading in readings:
        made.on_vitals(HostVitals(job="j", attempt=0, time_ns=0, host="h", gpus=(reading,)))
    return made


def test_a_healthy_gpu_and_an_unknown_one_have_nothing_to_tell() -> None:
    made = states(
        GpuReading(uuid="a", index=0, ranks=(0,), sm_clock_mhz=1700, throttle_reasons=("gpu_idle",), ecc_uncorrected=3),
        GpuReading(uuid="b", index=1, ranks=(1,), sm_clock_mhz=1755),
    )
    assert made.problems(0) == made.problems(1) == made.problems(7) == ()


def test_errors_that_came_during_the_job_are_told_and_old_ones_are_not() -> None:
    made = states(
        GpuReading(uuid="a", index=0, ranks=(0,), ecc_uncorrected=3),
        GpuReading(uuid="a", index=0, ranks=(0,), ecc_uncorrected=5, xid=79, temperature_c=91),
    )
    assert [word for problem in made.problems(0) for word in ("2 new", "XID 79", "91 C") if word in problem.words] == [
        "2 new", "XID 79", "91 C",
    ]  # fmt: skip
