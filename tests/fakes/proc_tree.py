"""A recorded /proc: the files of a few processes, as Linux 6.18 wrote them, with their state set as a test needs it."""

from __future__ import annotations

import shutil
from pathlib import Path

from collector.host.rank_process import RankProcess

# One line of /proc/<pid>/stat, or of a thread's; the command holds a space and brackets, as a process may name itself.
STAT = (
    "{pid} (python (rank) 2) {state} 1191 1197 1191 0 -1 4194304 1211 0 0 0 {utime} 3 0 0 20 0 9 0 {start_ticks} "
    "21241856 1846 18446744073709551615 4194304 7241605 140722187263184 0 0 0 0 16781312 134217730 0 0 0 17 1 0 0 "
    "0 0 0 9662864 10123976 38449152 140722187266338 140722187266361 140722187266361 140722187268069 {wait_status}\n"
)


def process(rank: int) -> RankProcess:
    """The process of a rank, as `ProcTree.put(100 + rank)` makes it."""
    return RankProcess(attempt=0, rank=rank, pid=100 + rank, start_ticks=1000)


class ProcTree:
    def __init__(self, root: Path) -> None:
        self.root = root

    def put(
        self, pid: int, *, state: str = "S", start_ticks: int = 1000, wait_status: int = 0, utime: int = 12
    ) -> None:
        folder = self.root / str(pid)
        main = folder / "task" / str(pid)
        main.mkdir(parents=True, exist_ok=True)
        text = STAT.format(pid=pid, state=state, start_ticks=start_ticks, wait_status=wait_status, utime=utime)
        (folder / "stat").write_text(text)
        (main / "stat").write_text(text)

    def say(self, pid: int, **files: str) -> None:
        """Give a process files of /proc by name: `syscall`, `wchan`, `maps`, `environ`, `cgroup`."""
        for name, text in files.items():
            (self.root / str(pid) / name).write_text(text)

    def run_by(self, pid: int, program: str) -> None:
        """Which program a process runs."""
        (self.root / str(pid) / "exe").symlink_to(program)

    def open_file(self, pid: int, descriptor: int, target: str) -> None:
        """Give a process an open descriptor."""
        folder = self.root / str(pid) / "fd"
        folder.mkdir(exist_ok=True)
        (folder / str(descriptor)).symlink_to(target)

    def close_file(self, pid: int, descriptor: int) -> None:
        (self.root / str(pid) / "fd" / str(descriptor)).unlink()

    def remove(self, pid: int) -> None:
        shutil.rmtree(self.root / str(pid))
