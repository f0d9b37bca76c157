"""A wheel brings the native libraries where it was made with a C compiler, and is made all the same without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from pacehound.instrument import hold, profiler, shim
from streams import native_loops

pytest.importorskip("setuptools", minversion="80")

ROOT = Path(__file__).resolve().parents[2]
FILES = ["pyproject.toml", "setup.py", "README.md"]
PACKAGES = ["pacehound", "collector", "streams", "storage", "alerts", "actuators", "simulator", "web"]
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@dataclass(frozen=True)
class Wheel:
    """A wheel, taken apart, and what its build said."""

    name: str
    site: Path
    said: str

    @property
    def libraries(self) -> list[Path]:
        return sorted(self.site.rglob("pacehound/**/*.so"))


def wheel(folder: Path, **environ: str) -> Wheel:
    source, site = folder / "source", folder / "site"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, source / name)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)],
        cwd=source,
        env={**os.environ, "PYTHONPATH": "", **environ},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (built,) = folder.glob("*.whl")
    zipfile.ZipFile(built).extractall(site)
    return Wheel(built.name, site, done.stdout + done.stderr)


@pytest.mark.skipif(shim.reason_not_made() is not None, reason="no C compiler")
def test_with_a_compiler_the_wheel_is_of_this_platform_and_its_libraries_are_the_ones_that_are_used(
    tmp_path: Path,
) -> None:
    made = wheel(tmp_path)
    assert "-py3-none-linux_" in made.name
    assert sorted(path.name for path in made.libraries) == sorted(
        [shim.NAME, profiler.NAME, hold.NAME, native_loops.NAME]
    )
    nowhere = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(made.site)}
    for module, name in ((one, one.NAME) for one in (shim, profiler, hold, native_loops)):
        command = [sys.executable, "-m", module.__name__]
        found = subprocess.run(command, cwd=tmp_path, env=nowhere, capture_output=True, text=True)
        assert Path(found.stdout.strip()) in made.libraries, found.stderr
        assert Path(found.stdout.strip()).name == name
    preloaded = {"LD_PRELOAD": str(next(path for path in made.libraries if path.name == shim.NAME))}
    started = subprocess.run([sys.executable, "-S", "-c", ""], env=preloaded, capture_output=True, text=True)
    assert (started.returncode, started.stderr) == (0, "")


@pytest.mark.parametrize("compiler", ["missing", "failing"])
def test_without_one_the_wheel_is_for_any_machine_and_brings_the_sources(tmp_path: Path, compiler: str) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    if compiler == "failing":
        (programs / "cc").symlink_to("/bin/false")
    made = wheel(tmp_path, PATH=str(programs), CC=str(programs / "cc"))
    assert made.name.endswith("-py3-none-any.whl")
    assert made.libraries == []
    assert (made.site / "collector" / "native" / "nccl_shim.c").is_file()
    assert (made.site / "streams" / "native" / "longest.c").is_file()
    why = "no C compiler; install gcc or clang" if compiler == "missing" else "compiling the NCCL shim failed"
    assert f"the wheel comes without {shim.NAME}, which is built at its first use" in made.said
    assert why in made.said


def test_a_build_of_other_sources_is_not_taken_for_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pacehound.instrument.native_build.PACKAGED", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for folder in ("shim-0123456789abcdef", shim.folder()):
        (tmp_path / folder).mkdir()
        assert shim.find() is None
        (tmp_path / folder / shim.NAME).touch()
    assert shim.find() == tmp_path / shim.folder() / shim.NAME


def test_a_shim_that_cannot_be_preloaded_from_where_it_is_installed_is_built_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "my packages"
    (installed / shim.folder()).mkdir(parents=True)
    (installed / shim.folder() / shim.NAME).touch()
    monkeypatch.setattr("pacehound.instrument.native_build.PACKAGED", installed)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert shim.path().is_relative_to(tmp_path / "cache")
