"""The readers on logs of real training runs: how much is in them, their pace, and where they are known to pause."""

from __future__ import annotations

import numpy as np
import pytest

from collector.importers.step_logs.recognise import read_step_logs
from tests.fakes.call_files import RECORDED

RECORDINGS = RECORDED / "iter"

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"the recordings are not at {RECORDINGS}")


def recording(prefix):
    (path,) = RECORDINGS.glob(f"{prefix}*")
    (log,) = read_step_logs(path)
    return log


@pytest.mark.parametrize(
    ("prefix", "format_name", "rows", "first", "last", "median_s"),
    [
        ("bigscience_perf_n16", "megatron", 49, 1, 49, 137.1),
        ("mlperf31_supermicro_maskrcnn_r0", "mlperf", 687, 50, 34350, 0.0739),
        ("mlperf31_supermicro_maskrcnn_r3", "mlperf", 688, 50, 34400, 0.0736),
        ("mlperf31_xfusion", "mlperf", 800, 50, 40000, 0.168),
        ("mlperf50_eosdfw", "mlperf", 252, 1, 252, 11.18),
        ("mlperf50_tyche", "mlperf", 618, 1, 618, 19.09),
        ("mlperf51_cisco_n16", "mlperf", 3648, 1, 3648, 0.485),
        ("mlperf51_cisco_n8", "mlperf", 3420, 1, 3420, 0.721),
        ("mlperf51_nvidia_5120gpu", "mlperf", 255, 0, 254, 2.232),
        ("mng_bulk", "train_time", 4740, 1, 4740, 0.180),
        ("mng_quantfp4", "train_time", 19072, 1, 19073, 0.393),
        ("mng_scaleup1b", "train_time", 20343, 1, 20344, 1.695),
        ("mng_soap", "train_time", 5999, 1, 6000, 0.255),
        ("mng_xsa", "train_time", 1480, 1, 1480, 0.055),
    ],
)
def test_counts_steps_and_pace(prefix, format_name, rows, first, last, median_s):
    log = recording(prefix)
    assert (log.format, len(log), log.step[0], log.step[-1]) == (format_name, rows, first, last)
    assert np.median(log.step_time_s) == pytest.approx(median_s, rel=0.01)
    assert (log.n_steps == (50 if "mlperf31" in prefix else 1)).all()


@pytest.mark.parametrize("prefix", ["mlperf51_cisco_n8", "mlperf51_cisco_n16"])
def test_the_pause_near_iteration_1003_stands_there(prefix):
    log = recording(prefix)
    assert abs(log.step[log.step_time_s.argmax()] - 1003) <= 3
    assert log.step_time_s.max() == pytest.approx(51, abs=1)
    assert set(log.work["sequence_length"]) == {8192}


def test_the_slow_periods_and_evaluations_of_the_supermicro_run_stand_where_they_are_known():
    log = recording("mlperf31_supermicro_maskrcnn_r0")
    for first, last in ((2800, 3500), (7700, 8200), (13500, 15150), (25200, 27550), (30700, 32000)):
        inside = np.median(log.step_time_s[(log.step > first) & (log.step <= last)])
        before = np.median(log.step_time_s[(log.step > first - 2000) & (log.step <= first - 500)])
        assert 1.06 < inside / before < 1.2
    pauses = log.step[log.step_time_s > 0.2]
    assert np.diff(pauses) == pytest.approx(2450, abs=60)
    announced = log.step[sorted(log.planned)]
    assert set(pauses) <= set(announced)
    assert len(announced) < 0.12 * len(log)


def test_the_speedup_of_the_xfusion_run_stands_near_step_6250():
    log = recording("mlperf31_xfusion")
    before = np.median(log.step_time_s[(log.step > 3000) & (log.step < 6000)])
    after = np.median(log.step_time_s[(log.step > 6500) & (log.step < 9000)])
    assert after / before - 1 == pytest.approx(-0.235, abs=0.02)


def test_every_tenth_step_of_the_soap_run_is_the_slow_one():
    log = recording("mng_soap")
    slow = log.step[log.step_time_s > 1.0][1:]
    assert np.mean(slow % 10 == 1) > 0.98
    assert len(slow) == pytest.approx(600, abs=8)
