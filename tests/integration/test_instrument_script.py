"""What a script notices of being instrumented: nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
import ring_reader

from pacehound.instrument.launch import environment

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch")
pytestmark = [pytest.mark.integration, needs_torch]

ALONE = """
    import sys, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    for _ in range(3):
        dist.all_reduce(torch.ones(2))
"""


def run(
    folder: Path, script: str, run_dir: Path | None, job: str = "j", *, module: bool = False
) -> subprocess.CompletedProcess[str]:
    (folder / "main.py").write_text(textwrap.dedent(script))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    env |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    env["PYTHONPATH"] = str(folder / "lib")
    if run_dir is not None:
        env = environment(run_dir, job, env)
    command = [sys.executable, *(["-m", "main"] if module else ["main.py"])]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)


def kinds(run_dir: Path) -> list[int]:
    return [record.kind for ring in ring_reader.read_all(run_dir) for record in ring.records]


def test_a_folder_with_our_names_and_its_own_sitecustomize_runs_as_without_us(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = 'ran'\n")
    (tmp_path / "collector.py").write_text("name = 'their collector'\n")
    for package in ("streams", "storage"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f"name = 'their {package}'\n")
    script = (
        ALONE
        + """
    import builtins, collector, importlib.util, multiprocessing, os, streams, storage, subprocess
    print(collector.name, streams.name, storage.name, builtins.theirs, sys.modules["sitecustomize"].__file__)
    print([importlib.util.find_spec(name) for name in ("alerts", "actuators", "simulator", "bench")])
    print([entry for entry in sys.path if "pacehound" in entry])
    print(dist.distributed_c10d.__loader__, torch.save.__name__, threads := __import__("threading").enumerate())
    child = [sys.executable, "-c", "import builtins; print(builtins.theirs)"]
    print(subprocess.run(child, capture_output=True, text=True).stdout)
    if os.fork() == 0:
        os._exit(0)
    print("forked", os.wait()[1])
    dist.destroy_process_group()
    """
    )
    (tmp_path / "run").mkdir()
    without, with_us = run(tmp_path, script, None), run(tmp_path, script, tmp_path / "run")

    def normal(done: subprocess.CompletedProcess[str]) -> list[str]:
        return [line.split(" at 0x")[0] for line in done.stdout.splitlines()]

    assert normal(with_us) == normal(without)
    assert (with_us.returncode, with_us.stderr) == (without.returncode, without.stderr) == (0, "")
    assert kinds(tmp_path / "run").count(3) == kinds(tmp_path / "run").count(4) == 3


def test_an_error_in_the_script_s_own_sitecustomize_is_reported_as_without_us(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sitecustomize.py").write_text("raise ValueError('theirs')\n")
    without, with_us = run(tmp_path, "print('on')", None), run(tmp_path, "print('on')", tmp_path)
    assert "theirs" in without.stderr
    assert (with_us.returncode, with_us.stdout, with_us.stderr) == (0, "on\n", without.stderr)
    assert not (tmp_path / "rings").exists(), "a process without a group writes nothing"


def test_an_exception_leaves_with_the_script_s_own_output_and_exit_code_and_is_noted(tmp_path: Path) -> None:
    script = (
        ALONE
        + """
    sys.excepthook = lambda *details: print("their hook", details[0].__name__, file=sys.stderr)
    raise ArithmeticError("\\n  the loss is not finite\\nof stage 3")
    """
    )
    (tmp_path / "run").mkdir()
    without, with_us = run(tmp_path, script, None), run(tmp_path, script, tmp_path / "run", module=True)
    # torch itself sometimes aborts at the end of a script that never destroyed its group.
    assert {without.returncode, with_us.returncode} <= {1, -signal.SIGABRT}
    assert "their hook ArithmeticError" in with_us.stderr
    (said,) = [r for ring in ring_reader.read_all(tmp_path / "run") for r in ring.records if r.kind == 6]
    assert ring_reader.leaving(said) == (1, "ArithmeticError: the loss is not finite")


@pytest.mark.parametrize(
    "trouble", [*(pytest.param(one, marks=[pytest.mark.prove]) for one in ("missing", "a file")), "full"]
)
def test_a_run_folder_that_cannot_be_written_changes_nothing(tmp_path: Path, trouble: str) -> None:
    run_dir = tmp_path / "run"
    script = ALONE + "    dist.destroy_process_group()\n    print('done')\n"
    if trouble == "a file":
        run_dir.write_text("")
    elif trouble == "full":  # no file may grow beyond 4 KB
        run_dir.mkdir()
        limit = "import resource, signal\nresource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        script = limit + textwrap.dedent(script)
    done = run(tmp_path, script, run_dir)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert not list(run_dir.glob("rings/*.ring")) if run_dir.is_dir() else True
    if trouble == "full":
        assert not list(run_dir.glob("rings/*")), "nothing half-made is left"


FORKS = """
    import os, torch, torch.distributed as dist

    def forked(task):
        pid = os.fork()
        if pid == 0:
            task()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        return pid

    def join(calls):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        for _ in range(calls):
            dist.all_reduce(torch.ones(2))

    def step_and_save():
        torch.optim.SGD([torch.ones(1, requires_grad=True)]).step()
        torch.save({}, "child.pt")

    first = forked(lambda: join(2))  # the way multiprocessing's fork makes ranks
    join(3)
    second = forked(step_and_save)  # the way a data loader makes workers
    dist.destroy_process_group()
    print(first, os.getpid(), second)
"""


@pytest.mark.parametrize("native", [pytest.param("0", marks=[pytest.mark.prove]), "1"])
def test_a_forked_child_writes_a_ring_of_its_own_or_none(
    tmp_path: Path, native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACEHOUND_NATIVE", native)
    done = run(tmp_path, FORKS, tmp_path)
    assert done.returncode == 0, done.stderr
    first, parent, second = map(int, done.stdout.split())
    seen: dict[int, list[int]] = {}
    for ring in ring_reader.read_all(tmp_path):
        seen.setdefault(ring.pid, []).extend(record.kind for record in ring.records)
    assert {pid: kinds.count(3) for pid, kinds in seen.items()} == {first: 2, parent: 3}
    assert second not in seen
    assert not {5} & set(seen[parent]), "the child's step is no step of its parent"


AGAIN = """
    import os
    dist.destroy_process_group()
    if "AGAIN" not in os.environ:
        os.environ["AGAIN"] = "it has begun once"
        os.execv(sys.executable, [sys.executable, *sys.argv])
"""


def test_a_script_that_begins_anew_in_its_own_place_is_recorded_in_rings_of_its_own(tmp_path: Path) -> None:
    """It has the pid that it had: its first rings were written over, and agents had read them already."""
    (tmp_path / "run").mkdir()
    done = run(tmp_path, ALONE + AGAIN, tmp_path / "run")
    assert (done.returncode, done.stderr) == (0, "")
    rings = ring_reader.read_all(tmp_path / "run")
    assert len({ring.pid for ring in rings}) == 1
    assert [kinds(tmp_path / "run").count(kind) for kind in (3, 4)] == [6, 6]
