"""The stub NCCL and the profiler plugin, built once per session, and a folder in shared memory per test."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.native import plugin_jobs, stub_jobs


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> stub_jobs.Built:
    if stub_jobs.COMPILER is None:
        pytest.skip("no C compiler")
    return stub_jobs.build(tmp_path_factory.mktemp("stub"))


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> plugin_jobs.Plugin:
    if stub_jobs.COMPILER is None:
        pytest.skip("no C compiler")
    plugin_jobs.skip_where_memory_is_short()
    return plugin_jobs.build(tmp_path_factory.mktemp("plugin"))


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    yield from stub_jobs.tmpfs()


@pytest.fixture
def new_job(built: stub_jobs.Built, shared_folder: Path) -> Iterator[Callable[..., stub_jobs.Job]]:
    made: list[stub_jobs.Job] = []

    def make(world: int | None = None, **environ: str) -> stub_jobs.Job:
        made.append(stub_jobs.Job(built, shared_folder / str(len(made)), world, environ=environ))
        return made[-1]

    yield make
    for job in made:
        job.stop()


@pytest.fixture
def new_plugin_job(plugin: plugin_jobs.Plugin, tmp_path: Path) -> plugin_jobs.NewPluginJob:
    def make(rank: int = 0, world: int | None = 2, of: plugin_jobs.Plugin | None = None) -> plugin_jobs.PluginJob:
        return plugin_jobs.PluginJob(of or plugin, tmp_path, rank, world)

    return make


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], stub_jobs.Built]:
    made: dict[str, stub_jobs.Built] = {}

    def build(sanitizer: str) -> stub_jobs.Built:
        if stub_jobs.COMPILER is None:
            pytest.skip("no C compiler")
        if sanitizer not in made:
            folder = tmp_path_factory.mktemp(sanitizer.replace(",", "-"))
            (folder / "empty.c").write_text("int main(void) { return 0; }\n")
            command = [stub_jobs.COMPILER, f"-fsanitize={sanitizer}", "empty.c", "-o", "empty"]
            if (
                subprocess.run(command, cwd=folder, capture_output=True).returncode
                or subprocess.run([folder / "empty"]).returncode
            ):
                pytest.skip(f"this compiler has no {sanitizer} sanitizer")
            made[sanitizer] = stub_jobs.build(folder, sanitizer)
        return made[sanitizer]

    return build
