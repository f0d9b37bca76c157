"""Runs the profiler plugin in a host of our own (tests/native/plugin/plugin_host.c), and reads what it wrote."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from collector.calls import rings
from collector.calls.frames import FrameLook, FrameReader
from collector.calls.rings import CALL, NO_RECORDS, Records, RingReader
from pacehound.instrument import profiler, shim
from tests.native.stub_jobs import run

HOST = Path(__file__).resolve().parent / "plugin" / "plugin_host.c"
JOB = "plugin-job"
NCCL_OF_API = {4: 22899, 5: 22809, 6: 23007}
"""A version that is not refused, for each interface."""


def skip_where_memory_is_short() -> None:
    """The plugin refuses to work with less than this left in /dev/shm, for NCCL would crash."""
    if shutil.disk_usage("/dev/shm").free < 256 << 20:
        pytest.skip("/dev/shm has less than 256 MiB left")


@dataclass(frozen=True)
class Plugin:
    """The plugin and a host for it."""

    built: Path
    host: Path


def build(folder: Path, sanitizer: str = "") -> Plugin:
    """Compile both, with a sanitizer in both or in none."""
    extra = [f"-fsanitize={sanitizer}", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"] if sanitizer else []
    common = [str(shim.compiler()), "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", *extra]
    host, built = folder / "plugin_host", folder / profiler.NAME
    run([*common, "-rdynamic", str(HOST), "-o", str(host), "-ldl", "-lpthread"])
    flags = [flag for flag in profiler.FLAGS if not flag.startswith(("-O", "-std"))]
    run([*common, *flags, *map(str, profiler.sources()), "-o", str(built), "-ldl", "-lpthread", "-lm"])
    return Plugin(built, host)


@dataclass
class PluginJob:
    """One process with the plugin, and its run folder."""

    plugin: Plugin
    folder: Path
    rank: int = 0
    world: int | None = 2

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def start(self, *scripts: Sequence[str], api: int = 6, **environ: str) -> subprocess.Popen[str]:
        """A host that plays one script per thread."""
        self.run_dir.mkdir(parents=True, exist_ok=True)
        paths = []
        for number, lines in enumerate(scripts):
            paths.append(self.folder / f"{self.rank}-{number}.txt")
            paths[-1].write_text("".join(f"{line}\n" for line in lines))
        env = {
            **os.environ,
            "PACEHOUND_RUN_DIR": str(self.run_dir),
            "PACEHOUND_JOB": JOB,
            "HOST_NCCL_VERSION": str(NCCL_OF_API[api]),
            "TSAN_OPTIONS": "halt_on_error=1:exitcode=66",
            "ASAN_OPTIONS": "detect_leaks=0",
        }
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
            env.pop(name, None)
        if self.world is not None:
            env |= {"RANK": str(self.rank), "LOCAL_RANK": str(self.rank), "WORLD_SIZE": str(self.world)}
        return subprocess.Popen(
            [str(self.plugin.host), str(self.plugin.built), str(api), *map(str, paths)],
            env=env | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def play(self, *scripts: Sequence[str], api: int = 6, dies: bool = False, **environ: str) -> str:
        """What the host printed after playing one script per thread; where it `dies`, they kill it."""
        process = self.start(*scripts, api=api, **environ)
        try:
            printed, said = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == (-signal.SIGKILL if dies else 0), (process.returncode, printed, said[-3000:])
        assert dies or printed.endswith("done\n")
        return printed + said

    def frames(self) -> list[FrameLook]:
        """What the probing frames say, in order of their names."""
        looks = []
        for path in sorted(self.run_dir.glob("frames/*.frame")):
            reader = FrameReader(path)
            looks.append(reader.look())
            reader.close()
        return looks

    def records(self) -> Records:
        """All records of all rings, viewed as calls."""
        parts = [NO_RECORDS]
        for path in sorted(self.run_dir.glob("rings/*.ring")):
            reader = RingReader(path)
            read = reader.read()
            reader.close()
            assert read.lost == 0
            parts.append(read.records)
        return np.concatenate(parts).view(CALL)

    def launches(self) -> Records:
        found = self.records()
        return found[found["kind"] == rings.LAUNCH]

    def completes(self) -> Records:
        found = self.records()
        return found[found["kind"] == rings.COMPLETE]

    def notes(self) -> list[str]:
        paths = self.run_dir.glob("notes/*-profiler.json")
        return [text for path in paths for text in json.loads(path.read_text())["notes"]]


NewPluginJob = Callable[..., PluginJob]
"""Makes one of a rank, of a world's size, and of a plugin."""
