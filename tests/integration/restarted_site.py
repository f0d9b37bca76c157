"""A site of two hosts on this machine: stops a job, and starts it on those that are not left out.

python restarted_site.py start|stop FOLDER STORE [HOST,HOST]
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from collector.host.processes import read_stat
from pacehound.runtime.head.client import live_owner

SCRIPT = Path(__file__).with_name("checkpointed_job.py")
HOSTS = ("a", "b")
RANKS = 4
SLOW = "b"


def start(folder: Path, store: Path, without: set[str]) -> None:
    """As many ranks as before, on fewer hosts; when there is a head, for whoever finds none becomes one."""
    deadline_s = time.monotonic() + 120
    while live_owner(store) is None and time.monotonic() < deadline_s:
        time.sleep(0.1)
    hosts = [host for host in HOSTS if host not in without]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pids = []
    for number, host in enumerate(hosts):
        watched = [sys.executable, "-m", "pacehound", "run", "--store", str(store), "--job", "J"]
        watched += ["--set", f"host.name={host}", "--", sys.executable, "-m", "torch.distributed.run"]
        watched += [f"--nnodes={len(hosts)}", f"--node-rank={number}", f"--nproc-per-node={RANKS // len(hosts)}"]
        watched += ["--master-addr=127.0.0.1", f"--master-port={port}", str(SCRIPT)]
        watched += [f"--folder={folder}", f"--host={host}", f"--slow-host={SLOW}"]
        with (folder / f"log-{host}").open("a") as log:
            env = {**os.environ, "OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(watched, env=env, stdout=log, stderr=log, start_new_session=True)
        pids.append(str(process.pid))
    (folder / "pids").write_text(" ".join(pids))


def _is_running(pid: int) -> bool:
    """Whether it is there, and no zombie."""
    stat = read_stat(pid)
    return stat is not None and stat.state != "exited"


def stop(folder: Path) -> None:
    """Until all of it has gone."""
    pids = [int(pid) for pid in (folder / "pids").read_text().split()]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline_s = time.monotonic() + 60
    while any(map(_is_running, pids)):
        if time.monotonic() > deadline_s:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            break
        time.sleep(0.1)


if __name__ == "__main__":
    word, where, kept, *left_out = sys.argv[1:]
    with (Path(where) / "commands").open("a") as commands:
        commands.write(f"{word} {' '.join(left_out)}\n")
    if word == "start":
        start(Path(where), Path(kept), set(left_out[0].split(",")) if left_out and left_out[0] else set())
    else:
        stop(Path(where))
