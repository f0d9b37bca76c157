"""A run of which nothing is seen: its owner is told which process it is, and what keeps it from being seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from collector.agent.why_unseen import FIRST_LOOK_NS, LOOK_AT_LEAST_EVERY_NS, TorchProcess, WhyUnseen, why_unseen
from pacehound.instrument.launch import PTH
from tests.fakes.proc_tree import ProcTree

RUN = "/dev/shm/run"
SET = {"PACEHOUND_RUN_DIR": RUN, "PACEHOUND_AUTOLOAD": "/ours/autoload/sitecustomize.py"}
KEPT = SET | {"PYTHONPATH": "src:/ours/autoload"}
REPLACED = SET | {"PYTHONPATH": "src"}


def process(*words: str, environ: Mapping[str, str] = KEPT, owner: str = "ann", has_pth: bool = False) -> TorchProcess:
    return TorchProcess(pid=41, words=words, owner=owner, reader="ann", environ=environ, has_pth=has_pth)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (process("python", "train.py", owner="bob"), "is bob's, who may not write where ann's `pacehound run` reads"),
        (process("python", "train.py", environ={"HOME": "/root"}), "was begun without the variables"),
        (process("python", "train.py", environ=REPLACED), "has another PYTHONPATH than `pacehound run` has set"),
        (process("/usr/bin/python3", "-uI", "train.py"), "runs Python with -I, which ignores PYTHONPATH"),
        (process("python", "-W", "error", "-E", "train.py"), "runs Python with -E, which ignores PYTHONPATH"),
        (process("python", "-S", "train.py", has_pth=True), "runs Python with -S"),
        (
            replace(process("python", "train.py"), out_of_reach=RUN),
            f"does not see this host's {RUN}, as in a container",
        ),
    ],
)
def test_what_keeps_a_process_from_being_seen_is_told(seen: TorchProcess, words: str) -> None:
    assert words in why_unseen(seen, RUN)
    assert why_unseen(seen, RUN).startswith("process 41 (")


@pytest.mark.parametrize(
    "seen",
    [
        process("python", "train.py"),
        process("python", "train.py", "-I", "-S"),  # the script's own
        process("python", "-m", "train", "-E"),
        process("python", "-X", "dev", "-c", "import torch", "-S"),
        process("python", "train.py", environ=REPLACED, has_pth=True),
        process("python", "-I", "train.py", has_pth=True),
        process("python", "train.py", environ=KEPT | {"PACEHOUND_RUN_DIR": "/dev/shm/another"}),
    ],
)
def test_of_a_process_that_can_be_seen_nothing_is_said(seen: TorchProcess) -> None:
    assert why_unseen(seen, RUN) == ""


def test_a_long_command_is_told_in_short() -> None:
    reason = why_unseen(process("/opt/bin/python", "/opt/bin/torchrun", *("--flag",) * 40, environ={}), RUN)
    assert reason.startswith("process 41 (python torchrun --flag ")
    assert "…) was begun" in reason
    assert len(reason) < 300


class Tree:
    """10 has begun 11, which has begun 12; torch is loaded in the last one and in 13, which is nobody's here."""

    def __init__(self, path: Path) -> None:
        self.run, self.ours, self.site = path / "run", path / "autoload", path / "site-packages"
        for folder in (self.run, self.ours, self.site):
            folder.mkdir()
        self.proc = ProcTree(path / "proc")
        for pid, children in ((10, "11 "), (11, "12 "), (12, ""), (13, "")):
            self.proc.put(pid)
            (self.proc.root / str(pid) / "task" / str(pid) / "children").write_text(children)
            maps = f"7f00-7f01 r-xp 00000000 08:01 9 {self.site}/torch/lib/libtorch_cpu.so\n" if pid > 11 else ""
            self.proc.say(pid, cmdline="python\0train.py\0", maps=maps)
            (self.proc.root / str(pid) / "root").symlink_to("/")
        self.begun(13)
        self.watch = WhyUnseen(self.run, self.proc.root)
        self.watch.look(lambda: 10, 0)

    def begun(self, pid: int, **environ: str) -> None:
        self.proc.say(pid, environ="".join(f"{name}={value}\0" for name, value in environ.items()))

    def begun_here(self, python_path: str) -> None:
        autoload = str(self.ours / "sitecustomize.py")
        self.begun(12, PACEHOUND_RUN_DIR=str(self.run), PACEHOUND_AUTOLOAD=autoload, PYTHONPATH=python_path)


def test_it_is_looked_for_among_what_the_command_has_begun_until_it_is_seen(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.begun_here("src")
    watch = tree.watch
    assert not watch.look(lambda: 10, FIRST_LOOK_NS - 1)  # torch takes seconds to be imported
    assert not watch.look(lambda: None, FIRST_LOOK_NS)  # no command has been begun
    assert watch.look(lambda: 10, FIRST_LOOK_NS)
    assert "process 12 (python train.py) has another PYTHONPATH" in watch.reason
    assert not watch.look(lambda: 10, FIRST_LOOK_NS + 1)
    tree.begun_here(f"src:{tree.ours}")
    assert watch.look(lambda: 10, FIRST_LOOK_NS + LOOK_AT_LEAST_EVERY_NS)
    assert watch.reason == ""
    assert not watch.look(lambda: 10, FIRST_LOOK_NS + 3 * LOOK_AT_LEAST_EVERY_NS)


def test_what_was_found_stays_when_a_look_comes_as_the_command_ends(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.begun_here("src")
    assert tree.watch.look(lambda: 10, FIRST_LOOK_NS)
    tree.proc.remove(12)
    assert not tree.watch.look(lambda: 10, FIRST_LOOK_NS + LOOK_AT_LEAST_EVERY_NS)
    assert "process 12 (python train.py) has another PYTHONPATH" in tree.watch.reason


def test_an_installed_pacehound_beside_torch_is_found(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.begun_here("src")
    (tree.site / PTH).write_text("")
    assert not tree.watch.look(lambda: 10, FIRST_LOOK_NS)


def test_an_environment_with_the_system_s_torch_may_have_pacehound_itself(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.begun_here("src")
    tree.proc.say(12, cmdline=f"{tmp_path}/env/bin/python\0train.py\0")
    site = tmp_path / "env/lib/python3.12/site-packages"
    site.mkdir(parents=True)
    (site / PTH).write_text("")
    assert not tree.watch.look(lambda: 10, FIRST_LOOK_NS)


def test_processes_without_torch_or_that_are_gone_are_passed_over(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.begun(12)
    tree.proc.say(12, maps="")
    assert not tree.watch.look(lambda: 10, FIRST_LOOK_NS)
    tree.proc.remove(12)
    assert not tree.watch.look(lambda: 10, 10 * LOOK_AT_LEAST_EVERY_NS)


@pytest.mark.parametrize("has_made_one", [False, True])
@pytest.mark.parametrize("folder", ["run", "ours"])
def test_a_container_with_files_of_its_own_is_told_which_folder_it_lacks(
    tmp_path: Path, folder: str, has_made_one: bool
) -> None:
    tree = Tree(tmp_path)
    tree.begun_here(str(tree.ours))
    files, lacked = tmp_path / "files", getattr(tree, folder)
    for one in (tree.run, tree.ours):
        within = files / str(one).lstrip("/")
        if one != lacked:
            within.parent.mkdir(parents=True, exist_ok=True)
            within.symlink_to(one)
        elif has_made_one:
            within.mkdir(parents=True)
    root = tree.proc.root / "12" / "root"
    root.unlink()
    root.symlink_to(files)
    assert tree.watch.look(lambda: 10, FIRST_LOOK_NS)
    assert f"does not see this host's {lacked}" in tree.watch.reason
