"""ChangepointDetector on step times of real training runs; their answers are known (the data's README)."""

import gzip
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from streams.changepoint import ChangepointDetector

SHARED = Path(os.environ.get("PACEHOUND_SHARED", Path(__file__).resolve().parents[4] / "shared"))
RECORDINGS = SHARED / "data" / "iter"

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"the recordings are not at {RECORDINGS}")


def read(prefix):
    """Steps and step times in seconds of one recording, as they were logged."""
    (path,) = RECORDINGS.glob(f"{prefix}*")
    text = gzip.decompress(path.read_bytes()).decode(errors="replace")
    if prefix.startswith("bigscience"):
        times_s = [float(ms) / 1e3 for ms in re.findall(r"elapsed time per iteration \(ms\): ([\d.]+)", text)]
        return np.arange(len(times_s)), np.array(times_s)
    if prefix.startswith("mng"):
        pairs = re.findall(r"step:(\d+)/\d+.*train_time:([\d.]+)ms", text)
        steps, total_ms = (np.array(column, float) for column in zip(*pairs, strict=True))
        is_new = np.diff(steps) > 0
        return steps[1:][is_new], (np.diff(total_ms) / np.maximum(np.diff(steps), 1) / 1e3)[is_new]
    events = [json.loads(line.split(":::MLLOG ", 1)[1]) for line in text.splitlines() if ":::MLLOG " in line]
    stats = [e for e in sorted(events, key=lambda e: e["time_ms"]) if e["key"] == "tracked_stats"]
    if "maskrcnn" in prefix:
        at = [(e["metadata"]["step"], e["time_ms"]) for e in stats if "time" in e["value"]]
        steps, time_ms = (np.array(column, float) for column in zip(*at, strict=True))
        return steps[1:], np.diff(time_ms) / np.diff(steps) / 1e3
    times_s = [e["value"]["train_step_time"] for e in stats if "train_step_time" in e["value"]]
    return np.arange(len(times_s)), np.array(times_s)


def changes_of(prefix):
    detector = ChangepointDetector()
    found = [detector.update(int(step), 0, float(time_s)) for step, time_s in zip(*read(prefix), strict=True)]
    return [change for change in found if change is not None]


@pytest.mark.parametrize(
    "prefix",
    [
        "mlperf50_tyche_256gpu_405b_r0",
        "mlperf51_nvidia_5120gpu_405b_r1",
        "bigscience_perf_n16_ds-on",
        "mlperf51_cisco_n8_llama31_8b_r3",
        "mlperf50_eosdfw_n320_405b_r0",
        "mng_soap",
    ],
)
def test_clean_spiky_and_periodic_runs_are_silent(prefix):
    assert changes_of(prefix) == []


def test_a_lasting_speedup_is_one_change_and_never_a_slowdown():
    found = changes_of("mlperf31_xfusion_10L40_maskrcnn_r5")
    assert [change.kind for change in found] == ["speedup"]
    assert found[0].magnitude == pytest.approx(-0.235, abs=0.03)
    assert abs(found[0].step - 6250) <= 500


def test_a_run_with_slow_periods_at_the_bar_gets_no_stuck_finding():
    """Slow periods of +7 to +13 %: what is found is relieved, and lies where the run was slow (2800 to 3500)."""
    found = changes_of("mlperf31_supermicro_maskrcnn_r0")
    assert [change.kind for change in found] == ["onset", "relief"] * (len(found) // 2)
    assert found[0].detected_step in range(2800, 3501)
    assert abs(found[1].step - 3500) <= 250
