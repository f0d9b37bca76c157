"""What is built from the tracked files installs into a clean environment and runs there; `make package`.

Needs a package index. `PYTHONS`, names or paths of interpreters with blanks between, runs it under each of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
proves = pytest.mark.prove

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = sorted({name.partition(".")[0] for name in PROJECT["tool"]["setuptools"]["packages"]})
PYTHONS = os.environ.get("PYTHONS", sys.executable).split()
CLASSIFIED = sorted(
    name.rpartition(" ")[2]
    for name in PROJECT["project"]["classifiers"]
    if name.startswith("Programming Language :: Python :: 3.")
)
UV = [sys.executable, "-m", "uv"]


def done(command: Sequence[object], **more: object) -> str:
    """What a command says on stdout; it must succeed."""
    words = [str(word) for word in command]
    end = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False, **more)  # type: ignore[call-overload]
    assert end.returncode == 0, f"{words}: {end.stdout[-2000:]}{end.stderr[-2000:]}"
    return str(end.stdout)


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    return sorted(done(["git", "ls-files"], cwd=ROOT).splitlines())


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, tracked: list[str]) -> Path:
    """A folder with what git tracks and nothing else."""
    folder = tmp_path_factory.mktemp("source")
    for name in tracked:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, source: Path) -> dict[str, Path]:
    """The sdist, and the wheel, made from the sdist."""
    made = Path(os.environ.get("PACKAGE_DIR", "") or tmp_path_factory.mktemp("dist"))
    done([sys.executable, "-m", "build", "--installer", "uv", "--outdir", made, source], cwd=source)
    version = PROJECT["project"]["version"]
    return {
        "sdist": made / f"pacehound-{version}.tar.gz",
        "wheel": next(made.glob(f"pacehound-{version}-py3-none-*.whl")),
    }


@dataclass(frozen=True)
class Installed:
    """An environment with nothing but the package and what it asks for, and an empty folder to work in."""

    environment: Path
    folder: Path

    def run(self, *arguments: object) -> str:
        return self._done("pacehound", *arguments)

    def _done(self, program: str, *arguments: object) -> str:
        variables = {
            "PATH": f"{self.environment / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "XDG_DATA_HOME": str(self.folder / "data"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }
        return done([self.environment / "bin" / program, *arguments], cwd=self.folder, env=variables)


PINNED = ("--constraint", ROOT / "constraints.txt")
OLDEST = ("--resolution", "lowest-direct")
"""Of everything that we name, the oldest version that we say is enough."""


IS_INSTRUMENTED = ("python", "-c", "import sys; print('pacehound.instrument.bootstrap' in sys.modules)")


def installed(
    folder: Path, python: str, package: Path, extras: str, versions: Sequence[str | Path] = PINNED
) -> Installed:
    environment, work = folder / "environment", folder / "work"
    work.mkdir()
    done([*UV, "venv", "--quiet", "--python", python, environment])
    where = ["--quiet", "--python", environment / "bin/python"]
    done([*UV, "pip", "install", *where, *versions, f"{package}[{extras}]"])
    return Installed(environment, work)


def watch_and_read(ours: Installed) -> None:
    """The simulated job's slow rank is named, a log's slowdown found, and a command watched."""
    assert PROJECT["project"]["version"] in ours.run("version")
    demo = json.loads(ours.run("demo", "--json"))
    assert [finding["culprits"] for incident in demo["incidents"] for finding in incident["findings"]] == [[2]]
    steps = [f"{step},{0.5 if step < 200 else 0.7}" for step in range(400)]
    (ours.folder / "steps.csv").write_text("\n".join(["step,step_time_s", *steps]) + "\n")
    (finding,) = json.loads(ours.run("analyze", "steps.csv", "--json"))["findings"]
    assert (finding["kind"], finding["onset"]["step"]) == ("slow", 200)
    assert json.loads(ours.run("run", "--json", "--", "true").splitlines()[-1])["incidents"] == []


def test_an_environment_with_nothing_else_has_a_head(source: Path, tmp_path: Path) -> None:
    """As `make demo` makes one: no Kafka, no torch, nothing of the tests."""
    ours = installed(tmp_path, sys.executable, source, "collector,embedded")
    watch_and_read(ours)
    assert ours.run("run", "--", "env", "PYTHONPATH=", *IS_INSTRUMENTED) == "True\n"


@proves
def test_the_wheel_has_every_tracked_file_of_the_packages_and_the_licence(
    built: dict[str, Path], tracked: list[str]
) -> None:
    inside = set(zipfile.ZipFile(built["wheel"]).namelist())
    ours = {name for name in tracked if name.partition("/")[0] in PACKAGES}
    assert ours - inside == set()
    assert {name for name in inside if name.partition("/")[0] in PACKAGES and not name.endswith(".so")} == ours
    version = PROJECT["project"]["version"]
    assert f"pacehound-{version}.dist-info/licenses/LICENSE" in inside


@proves
def test_the_sdist_has_what_it_takes_to_build_and_to_read_about_it(built: dict[str, Path], tracked: list[str]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"pyproject.toml", "setup.py", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt"}
    assert wanted | {name for name in tracked if name.partition("/")[0] in PACKAGES} <= inside


@proves
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_what_is_installed_watches_the_simulated_job_and_reads_a_log(
    built: dict[str, Path], tmp_path: Path, kind: str, python: str
) -> None:
    watch_and_read(installed(tmp_path, python, built[kind], "collector,embedded"))


@proves
@pytest.mark.parametrize("python", PYTHONS)
def test_the_oldest_versions_that_we_name_are_enough(built: dict[str, Path], tmp_path: Path, python: str) -> None:
    watch_and_read(installed(tmp_path, python, built["wheel"], "collector,embedded", OLDEST))


@proves
@pytest.mark.parametrize("python", PYTHONS)
def test_a_training_host_needs_no_store(built: dict[str, Path], tmp_path: Path, python: str) -> None:
    ours = installed(tmp_path, python, built["wheel"], "collector")
    there = {path.name for path in (ours.environment / "lib").glob("python3*/site-packages/*")}
    assert there & {"chdb", "faust", "torch"} == set()
    assert "watched" in ours.run("run", "--endpoint", "http://127.0.0.1:9", "--", "echo", "watched")


@proves
@pytest.mark.parametrize("version", CLASSIFIED)
@pytest.mark.parametrize("extra", [name for name in PROJECT["project"]["optional-dependencies"] if name != "dev"])
def test_every_extra_has_wheels_for_every_python_that_we_name(version: str, extra: str, tmp_path: Path) -> None:
    wanted = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"][extra]]
    (tmp_path / "wanted.in").write_text("\n".join(wanted))
    constraints = ["--constraint", ROOT / "constraints.txt"]
    done(
        [
            *UV,
            "pip",
            "compile",
            "--quiet",
            "--python-version",
            version,
            "--only-binary",
            ":all:",
            *constraints,
            "--output-file",
            tmp_path / "out.txt",
            tmp_path / "wanted.in",
        ]
    )
