"""The shape of a job: from the file that lies beside its trace, else from the trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pacehound.errors import InvalidInput
from pacehound.model.whatif_result import JobMeta
from streams.whatif.layout import Trace


def meta_of(trace: Trace, path: Path, meta_file: Path | None = None) -> JobMeta:
    """The shape of the job of a trace.

    `meta-NAME.yaml` beside `trace-NAME.parquet` is taken where it is there. Without one, the distance of world ranks
    says how many GPUs make up a worker (tensor and context parallelism together, told as `tp_size`).

    Raises
    ------
    InvalidInput
        The file cannot be read, or speaks of another job than the trace.
    """
    name = path.stem.removeprefix("trace-")
    file = meta_file or path.with_name(f"meta-{name}.yaml")
    n_dp, n_stages = trace.n_dp, trace.ops.n_stages
    vpp = max(int(trace.ops.mc.max()) + 1, 1)
    if meta_file is None and not file.is_file():
        tp = _gpus_of_a_worker(trace)
        return JobMeta(
            trial_name=name, dp_size=n_dp, pp_size=n_stages, tp_size=tp, vpp_size=vpp, world_size=n_dp * n_stages * tp
        )
    told = _flat_yaml(file)
    numbers = {
        key: _positive(told.get(f"{key}_size", "1"), f"{key}_size", file) for key in ("dp", "pp", "tp", "dsp", "vpp")
    }
    for key, seen in (("dp", n_dp), ("pp", n_stages)):
        if f"{key}_size" in told and numbers[key] != seen:
            raise InvalidInput(f"{file} says {key}_size {numbers[key]}, but {path} has {seen}: not of one job")
    return JobMeta(
        trial_name=told.get("trial_name", name),
        run_id=int(told.get("run_id", "0")) if told.get("run_id", "0").isdigit() else 0,
        dp_size=n_dp,
        pp_size=n_stages,
        tp_size=numbers["tp"],
        dsp_size=numbers["dsp"],
        vpp_size=numbers["vpp"] if "vpp_size" in told else vpp,
        world_size=n_dp * n_stages * numbers["tp"] * numbers["dsp"],
    )


def _gpus_of_a_worker(trace: Trace) -> int:
    ranks = np.unique(trace.ranks[trace.ranks >= 0])
    return max(int(np.gcd.reduce(np.diff(ranks))), 1) if len(ranks) > 1 else 1


def _flat_yaml(file: Path) -> dict[str, str]:
    """Lines of `key: value`; more of YAML such files do not use."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}") from error
    lines = (line.split("#")[0].partition(":") for line in text.splitlines())
    return {key.strip(): value.strip().strip("'\"") for key, colon, value in lines if colon}


def _positive(value: str, key: str, file: Path) -> int:
    if not value.isdigit() or int(value) < 1:
        raise InvalidInput(f"{file}: {key} is {value!r}, not a number from 1 on")
    return int(value)
