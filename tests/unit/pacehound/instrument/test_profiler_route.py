"""`pacehound run --nccl profiler` sets NCCL's plugin, leaves a plugin of the user alone, and doctor says what works."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from pacehound import cli
from pacehound.cli import doctor_checks
from pacehound.instrument import profiler, shim
from pacehound.launcher.entry import watching_nccl

LIBRARY = Path("/cache") / profiler.NAME


def test_the_plugin_is_put_where_nccl_looks() -> None:
    once = profiler.preloaded({"A": "b"}, LIBRARY)
    assert once == {"A": "b", "NCCL_PROFILER_PLUGIN": str(LIBRARY)}
    assert profiler.preloaded(once, Path("/other") / profiler.NAME)["NCCL_PROFILER_PLUGIN"] == f"/other/{profiler.NAME}"


def test_a_plugin_of_the_users_is_left_alone_and_the_job_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler, "build", lambda: LIBRARY)
    monkeypatch.setenv("NCCL_PROFILER_PLUGIN", "inspector")
    started = tmp_path / "started"
    command = ["run", "--nccl", "profiler", "--store", str(tmp_path / "s"), "--", "touch", str(started)]
    answer = CliRunner().invoke(cli.pacehound, command)
    assert answer.exit_code == 1
    assert "NCCL_PROFILER_PLUGIN=inspector is set" in answer.stderr
    assert "--nccl shim" in answer.stderr
    assert not started.exists()


def test_shim_and_plugin_are_loaded_together_in_any_order() -> None:
    """Who tells of a call they agree on (tests/native/test_together.py)."""
    shim_library = Path("/cache") / shim.NAME
    both = {"LD_PRELOAD": f"{shim_library}:/a.so", "NCCL_PROFILER_PLUGIN": str(LIBRARY)}
    assert profiler.preloaded(shim.preloaded({"LD_PRELOAD": "/a.so"}, shim_library), LIBRARY) == both
    assert shim.preloaded(profiler.preloaded({"LD_PRELOAD": "/a.so"}, LIBRARY), shim_library) == both
    assert shim.preloaded({"NCCL_PROFILER_PLUGIN": "inspector"}, shim_library)["NCCL_PROFILER_PLUGIN"] == "inspector"


def test_run_puts_both_into_the_environment_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (shim, profiler):
        monkeypatch.setattr(module, "build", lambda name=module.NAME: Path("/cache") / name)
    environ = watching_nccl(("shim", "profiler", "shim"), {})({})
    assert environ == {"LD_PRELOAD": f"/cache/{shim.NAME}", "NCCL_PROFILER_PLUGIN": f"/cache/{profiler.NAME}"}
    assert watching_nccl((), {})({"A": "b"}) == {"A": "b"}


def test_doctor_says_what_stands_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_PROFILER_PLUGIN", raising=False)
    monkeypatch.setattr(profiler, "find", lambda: None)
    monkeypatch.setattr(shim, "find", lambda: None)
    monkeypatch.setattr(shim, "compiler", lambda: None)
    check = doctor_checks.check_profiler()
    assert (check.result, check.fix) == ("limited", "install gcc or clang")
    monkeypatch.setattr(shim, "compiler", lambda: "/usr/bin/cc")
    assert doctor_checks.check_profiler().result == "ok"
    monkeypatch.setattr(profiler, "find", lambda: LIBRARY)
    monkeypatch.setattr(profiler, "installed_nccl", lambda: 23102)
    monkeypatch.setattr(profiler, "refusal", lambda library, version: f"slow with {version}")
    check = doctor_checks.check_profiler()
    assert (check.result, check.detail) == (
        "limited",
        "NCCL 2.31.2, which is installed here, is refused: slow with 23102",
    )
    monkeypatch.setattr(profiler, "refusal", lambda library, version: None)
    monkeypatch.setattr(profiler, "without_ends", lambda library, version: "slow kernel events")
    check = doctor_checks.check_profiler()
    assert check.result == "limited"
    assert "when calls end is not: slow kernel events" in check.detail
    monkeypatch.setattr(profiler, "without_ends", lambda library, version: None)
    assert "works with NCCL 2.31.2" in doctor_checks.check_profiler().detail
    monkeypatch.setenv("NCCL_PROFILER_PLUGIN", "inspector")
    assert "one plugin only" in doctor_checks.check_profiler().detail


def test_the_version_of_the_installed_package_is_read_as_nccl_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name.endswith("cu12"):
            return "2.28.9"
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert profiler.installed_nccl() == 22809


@pytest.mark.skipif(shim.compiler() is None, reason="no C compiler")
def test_the_plugin_itself_says_which_versions_it_refuses() -> None:
    library = profiler.build()
    assert "NVIDIA/nccl#2112" in (profiler.refusal(library, 23003) or "")
    for version, why in ((22707, "2039"), (22907, None), (23007, None), (23102, "2355"), (23203, "2355")):
        assert profiler.refusal(library, version) is None
        said = profiler.without_ends(library, version)
        assert said is None if why is None else f"NVIDIA/nccl#{why}" in (said or "")
