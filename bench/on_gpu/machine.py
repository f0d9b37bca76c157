"""Whether this machine can be measured, and what it is."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

NCCL = "nvidia-nccl-cu13==2.32.3"
"""The first with NCCL_MULTI_RANK_GPU_ENABLE; torch brings an older one, so this one goes before it (LD_PRELOAD)."""
_FOLDER = Path(".gpu")


def why_not() -> str:
    """Why nothing can be measured here; empty where it can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no driver of NVIDIA's (libcuda.so.1)"
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value < 1:
        return "the driver has no GPU"
    try:
        import torch
    except ImportError:
        return "torch is not installed; run make gpu, which installs it"
    return "" if torch.cuda.is_available() else f"torch {torch.__version__} cannot use the GPU"


def facts() -> dict[str, str]:
    """What this machine is, for the page."""
    import torch

    found = {"torch": torch.__version__}
    if torch.cuda.is_available():
        found |= {"GPU": torch.cuda.get_device_name(0), "CUDA of torch": str(torch.version.cuda)}
        found["driver"] = _said(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    found["NCCL"] = NCCL.partition("==")[2]
    found["processors"] = str(os.cpu_count())
    return found


def nccl() -> Path:
    """The library that several ranks can share a GPU with, installed beside torch's own."""
    library = (_FOLDER / "nvidia" / "nccl" / "lib" / "libnccl.so.2").absolute()
    if not library.is_file():
        command = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*command, "--target", str(_FOLDER), NCCL], check=True)
    return library


def job_environment() -> Mapping[str, str]:
    """Of a job whose ranks share the GPU."""
    return {"LD_PRELOAD": str(nccl()), "NCCL_MULTI_RANK_GPU_ENABLE": "1"}


def _said(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError):
        return "not known"
