"""Cost per instrumented call: the same all_reduce on a hooked and an unhooked group of one process, in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pacehound.instrument import build
from pacehound.instrument.launch import environment

SCRIPT = Path(__file__).with_name("hooked_calls.py")
HOOKS = {"Python hooks": "0", "C++ hooks": "1"}


def run() -> list[dict[str, Any]]:
    """One row per kind of hooks and figure; the C++ rows only where they are built."""
    rows: list[dict[str, Any]] = []
    for case, native in HOOKS.items():
        if native == "1" and build.find() is None:
            print(
                f"bench: no C++ hooks: {build.reason_unavailable() or 'run pacehound doctor --build'}", file=sys.stderr
            )
            continue
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            env = environment(Path(folder), "bench", {**os.environ, "PACEHOUND_NATIVE": native})
            done = subprocess.run([sys.executable, str(SCRIPT)], env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{SCRIPT.name} failed with {done.returncode}: {done.stderr[-2000:]}")
        measured = json.loads(done.stdout.splitlines()[-1])
        for figure in ("calling thread", "whole process"):
            with_hooks, bare = measured["hooked"][figure], measured["bare"][figure]
            rows.append({"case": case, "figure": f"added, {figure}", "value": with_hooks - bare, "unit": "us/call"})
            rows.append({"case": case, "figure": f"ratio, {figure}", "value": with_hooks / bare, "unit": "x bare"})
    return rows
