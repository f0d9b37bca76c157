"""`pacehound run` is invisible: exit status, signals and streams are those of the command, whatever happens to us."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from bench.rig import realjob
from pacehound.bus.otlp_headers import with_pin
from pacehound.errors import Unavailable
from pacehound.runtime.head.client import HeadClient
from pacehound.runtime.head.owner import announced

pytestmark = pytest.mark.integration


def wait_for(condition, what):
    return realjob.until(what, condition, 60, 0.05)


def listening_ports(pid):
    """The addresses at which a process listens for TCP, in the kernel's words."""
    links = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # what it has closed meanwhile
            links.append(os.readlink(path))
    sockets = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    rows = [
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()
    ]
    return [row[1] for row in rows if row[3] == "0A" and row[9] in sockets]


def python(code):
    return [sys.executable, "-c", code]


def lasts_until(stop):
    """A command that lasts as long as a test likes: until a file is there."""
    return ["bash", "-c", f"until [ -e {stop} ]; do sleep 0.1; done"]


def test_exit_code_and_streams_are_the_commands(product):
    """Binary stdin passes to the command and its output back, untouched; its exit code is ours."""
    data = bytes(range(256)) * 4096
    code = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1]); sys.stderr.write('E'); sys.exit(7)"
    done = product.finish("run", "--", *python(code), input=data)
    assert done.returncode == 7
    assert done.stdout == data[::-1]
    assert done.stderr.startswith(b"E")


def test_a_command_killed_by_a_signal_kills_us_by_the_same(product):
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
        code = f"import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.kill(os.getpid(), {number})"
        done = product.finish("run", "--", *python(code))
        assert done.returncode == -number


def test_a_command_that_cannot_start_says_so_as_a_shell_does(product, tmp_path):
    missing = product.finish("run", "--", "no-such-command-anywhere")
    assert missing.returncode == 127
    assert b"no-such-command-anywhere" in missing.stderr
    (tmp_path / "plain.txt").write_text("no program")
    refused = product.finish("run", "--", str(tmp_path / "plain.txt"))
    assert refused.returncode == 126


def test_nothing_to_run_and_a_bad_setting_are_usage_errors(product):
    assert product.finish("run").returncode == 2
    bad = product.finish("run", "--set", "hang.nonsense=1", "--", "true")
    assert bad.returncode == 2
    assert b"hang.nonsense" in bad.stderr
    assert product.finish("run", "--endpoint", "nonsense", "--", "true").returncode == 2


SAYS_SIGNALS = """
import os, signal, sys, time
def say(number, frame):
    os.write(1, (signal.Signals(number).name + "\\n").encode())
for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGQUIT", "SIGWINCH"):
    signal.signal(getattr(signal, name), say)
os.write(1, b"ready\\n")
end = time.monotonic() + 20
while time.monotonic() < end and not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
sys.exit(5)
"""


def test_signals_sent_to_us_reach_the_command_once(product, tmp_path):
    """Each of them, in order, exactly once; the command decides what they mean."""
    stop = tmp_path / "stop"
    process = product.start(
        "run", "--", *python(SAYS_SIGNALS), str(stop), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline() == b"ready\n"
    sent = ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGQUIT", "SIGWINCH"]
    for name in sent:
        process.send_signal(getattr(signal, name))
        assert process.stdout.readline() == f"{name}\n".encode()
    time.sleep(0.3)
    stop.touch()
    rest, _ = process.communicate(timeout=20)
    assert rest == b""
    assert process.returncode == 5


def test_sigterm_ends_a_command_that_does_not_mind(product):
    process = product.start("run", "--", "sleep", "30", stderr=subprocess.PIPE)
    time.sleep(1.0)
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGTERM


def test_ctrl_c_at_a_terminal_reaches_the_command_once(product, tmp_path):
    """The terminal delivers it to the whole group by itself; helpers of ours do not hear it."""
    stop = tmp_path / "stop"
    leader, follower = os.openpty()
    process = product.start(
        "run",
        "--",
        *python(SAYS_SIGNALS),
        str(stop),
        stdin=follower,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )
    os.close(follower)
    assert process.stdout.readline() == b"ready\n"
    os.write(leader, b"\x03")
    assert process.stdout.readline() == b"SIGINT\n"
    time.sleep(0.5)
    stop.touch()
    rest, _ = process.communicate(timeout=20)
    os.close(leader)
    assert rest == b""
    assert process.returncode == 5


def test_open_descriptors_and_foreground_group_are_inherited(product, tmp_path):
    readable, writable = os.pipe()
    code = f"import os; os.write({writable}, str(os.getpgid(0)).encode())"
    process = product.start("run", "--", *python(code), pass_fds=[writable], stderr=subprocess.PIPE)
    process.communicate(timeout=20)
    os.close(writable)
    group = int(os.read(readable, 100))
    os.close(readable)
    assert group == os.getpgid(0)


def run_dir_of(product, job):
    """The run's folder, once its agent is there, and as the first process that is watched leaves it."""

    def look():
        agents = (product.root / "shared_memory").glob(f"pacehound-{os.getuid()}/run-*/agent.pid")
        return [path for path in agents if json.loads((path.parent / "job.json").read_text())["job"] == job]

    folder = wait_for(look, what="an agent")[0].parent
    (folder / "rings").mkdir(exist_ok=True)
    return folder


def test_helpers_yield_the_processor_to_the_command_and_keep_our_secrets_to_themselves(product, tmp_path):
    """Among processes and, where the kernel shares processors among sessions first, as a session.

    No command line and no environment, of helpers or of the command, repeats what is secret.
    """
    job = uuid.uuid4().hex  # what an earlier run has left behind has another name
    names = ("TOKEN", "STORE_PASSWORD", "STORE_URL", "ALERTS_ALERTMANAGER_URL")
    secrets = {f"PACEHOUND_{name}": "http://u:s3cret@127.0.0.1:9" for name in names}
    process = product.start("run", "--job", job, "--", "sleep", "60", environ=secrets)
    try:
        run_dir = run_dir_of(product, job)
        head = json.loads(wait_for(lambda: read(product.store / "head.json"), what="a head"))["pid"]
        for helper in (head, int(wait_for(lambda: read(run_dir / "agent.pid"), what="an agent"))):
            assert os.getpriority(os.PRIO_PROCESS, helper) > os.getpriority(os.PRIO_PROCESS, process.pid)
            group = read(Path("/proc") / str(helper) / "autogroup")
            assert not group or int(group.split()[-1]) > 0, group
        command = json.loads(wait_for(lambda: read(run_dir / "command.json"), what="a command"))["pid"]
        for pid in (head, int(read(run_dir / "agent.pid")), command):
            for kind in ("cmdline", "environ"):
                assert "s3cret" not in read(Path("/proc") / str(pid) / kind), (pid, kind)
    finally:
        process.terminate()
        process.wait(30)


def test_killed_helpers_come_back_and_the_command_does_not_notice(product, tmp_path):
    """kill -9 of head and agent: the command runs on, both return, the incident is still found and closed."""
    job, stop = uuid.uuid4().hex, tmp_path / "stop"
    process = product.start(
        "run", "--job", job, "--json", "--", *lasts_until(stop), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    run_dir = run_dir_of(product, job)
    head = json.loads(wait_for(lambda: read(product.store / "head.json"), what="a head"))["pid"]
    agent = int((run_dir / "agent.pid").read_text())
    client = HeadClient(Path(announced(product.store).socket))
    # The next head has to go on from there.
    wait_for(lambda: client.status()["jobs"] == [job], what="the agent's first word")
    os.kill(head, signal.SIGKILL)
    os.kill(agent, signal.SIGKILL)
    wait_for(lambda: json.loads(read(product.store / "head.json") or "{}").get("pid", head) != head, what="a new head")
    wait_for(lambda: int(read(run_dir / "agent.pid") or agent) != agent, what="a new agent")
    (run_dir / "stopped").write_text("3")
    wait_for(lambda: incidents_of(product), what="the incident")
    stop.touch()
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    answer = json.loads(out)
    (incident,) = answer["incidents"]
    assert incident["findings"][0]["culprits"] == [3]
    assert (incident["state"], incident["closed_why"]) == ("closed", "job ended")
    assert b"starting it again" in err
    assert not run_dir.exists()


def incidents_of(product):
    done = product.finish("incidents", "--json", "--store", str(product.store))
    if b"there is no store" in done.stderr:
        return []  # its head is only starting
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["incidents"]


def read(path):
    try:
        return path.read_text()
    except OSError:
        return ""


NEVER_READY = """
import os, sys, time
if {"up", "agent"} & set(sys.orig_argv):
    time.sleep(30)
    os._exit(1)
"""


def test_a_command_that_is_no_job_waits_for_no_helper_and_a_job_does(product, tmp_path):
    """The helpers do not get ready here: neither is waited for, and nothing of the run is left."""
    (tmp_path / "sitecustomize.py").write_text(NEVER_READY)
    slow = {"environ": {"PYTHONPATH": str(tmp_path)}, "timeout_s": 30.0}
    done = product.finish("run", "--job", "a", "--", "true", **slow)
    said = done.stderr.decode().splitlines()
    assert done.returncode == 0
    assert [line.partition(": job a: ")[2][:12] for line in said] == ["not watched:"]
    assert list((product.home / "state").rglob("run-*")) == []
    begins = ["sh", "-c", 'mkdir "$PACEHOUND_RUN_DIR/rings"']
    assert b"its agent has left no word" in product.finish("run", "--job", "b", "--", *begins, **slow).stderr


SLOW_HEAD = """
import sys, time
if "up" in sys.orig_argv:
    time.sleep(4.5)
"""


def test_a_job_that_is_over_before_its_head_has_begun_waits_for_it(product, tmp_path):
    """As on a machine that is full of other work; a head that ends by itself is waited for more briefly."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_HEAD)
    begins = ["sh", "-c", 'mkdir "$PACEHOUND_RUN_DIR/rings"']
    neighbours = realjob.Neighbours()
    done = product.finish("run", "--", *begins, environ={"PYTHONPATH": str(tmp_path)}, timeout_s=60.0)
    assert done.returncode == 0
    with realjob.unless_disturbed(neighbours.disturbance):  # of its ten seconds the head needs eight on a quiet machine
        assert b"not everything that was seen" not in done.stderr, done.stderr


def test_the_incident_can_be_asked_for_during_and_after_the_run(product, tmp_path):
    """While the head owns the store it answers; afterwards the store is opened; the head ends with its last run."""
    job, stop = uuid.uuid4().hex, tmp_path / "stop"
    process = product.start("run", "--job", job, "--", *lasts_until(stop), stderr=subprocess.PIPE)
    run_dir = run_dir_of(product, job)
    (run_dir / "stopped").write_text("1")
    (during,) = wait_for(lambda: incidents_of(product), what="the incident")
    assert during["state"] == "open"
    rows = product.finish("sql", "SELECT 1", "--json", "--store", str(product.store))
    assert "Incident" in [row[0] for row in json.loads(rows.stdout)["rows"]]
    announced = json.loads((product.store / "head.json").read_text())
    head, page = announced["pid"], urlsplit(announced["page"])
    assert listening_ports(head) == [f"0100007F:{page.port:04X}"], "the page alone, and on this machine alone"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"http://{page.netloc}/api/jobs", timeout=10)
    stop.touch()
    _, err = process.communicate(timeout=30)
    assert b"Rank 1 holds the job up" in err
    (after,) = incidents_of(product)
    assert (after["id"], after["state"], after["closed_why"]) == (during["id"], "closed", "job ended")
    with pytest.raises(ProcessLookupError):
        os.kill(head, 0)
    refused = product.finish("sql", "DROP TABLE x", "--store", str(product.store))
    assert refused.returncode == 2


def test_two_runs_share_the_owner_of_the_store_and_the_first_to_end_leaves_it_to_the_other(product, tmp_path):
    stops = [tmp_path / name for name in "ab"]
    first = product.start("run", "--job", "a", "--", *lasts_until(stops[0]), stderr=subprocess.PIPE)
    wait_for(lambda: read(product.store / "head.json"), what="a head")
    second = product.start("run", "--job", "b", "--", *lasts_until(stops[1]), stderr=subprocess.PIPE)
    run_dir_of(product, "b")
    beside = product.finish("run", "--job", "a", "--", "sh", "-c", "echo $PACEHOUND_ATTEMPT")
    assert beside.stdout == b"1000\n", "a live run of that name has this one's attempts below it"
    assert b"another run of job a is live on this host (attempt 0): this one is attempt 1000" in beside.stderr
    (run_dir_of(product, "a") / "calls").touch()
    stops[0].touch()
    _, first_err = first.communicate(timeout=30)
    assert b"job a: no incident in what was seen: 100 calls of 4 ranks in 5 iterations" in first_err
    assert (product.store / "head.json").exists()
    stops[1].touch()
    _, second_err = second.communicate(timeout=30)
    assert b"no incident" not in second_err
    assert b"job b: not watched: the command made no call" in second_err
    assert second.returncode == 0
    assert not (product.store / "head.json").exists()


def leases_of(product):
    owner = announced(product.store)
    try:
        return HeadClient(Path(owner.socket)).status()["leases"] if owner else 0
    except Unavailable:
        return 0  # its head is only starting


def test_kill_9_of_run_leaves_the_command_watched_to_its_end_and_the_next_run_says_so(product, tmp_path):
    """Training is never the victim, and its watch goes on: what happens afterwards is found; then all of ours goes."""
    job = uuid.uuid4().hex  # what an earlier run has left behind has another name
    process = product.start("run", "--job", job, "--", "sleep", "60", stderr=subprocess.DEVNULL)
    run_dir = run_dir_of(product, job)
    head = json.loads(wait_for(lambda: read(product.store / "head.json"), what="a head"))["pid"]
    agent = int(read(run_dir / "agent.pid"))
    command = json.loads(wait_for(lambda: read(run_dir / "command.json"), what="a command"))["pid"]
    wait_for(lambda: leases_of(product) == 2, what="the agent's hold on the head, beside the launcher's")
    process.kill()
    process.wait()
    try:
        (run_dir / "stopped").write_text("1")
        wait_for(lambda: b"incident-" in product.finish("incidents", "--store", str(product.store)).stdout, "incidents")
        for pid in (head, agent, command):
            os.kill(pid, 0)
        (run_dir / "calls").touch()
    finally:
        os.kill(command, signal.SIGKILL)
    for helper in (head, agent):
        wait_for(lambda helper=helper: not Path(f"/proc/{helper}").exists(), what=f"the end of helper {helper}")
    done = product.finish("incidents", "--json", "--store", str(product.store))
    (incident,) = json.loads(done.stdout)["incidents"]
    assert (incident["state"], incident["closed_why"]) == ("closed", "job ended")
    after = product.finish("run", "--", "true")
    assert (
        f"job {job}: its `pacehound run` was killed; its agent watched it to its end: 100 calls"
        in after.stderr.decode()
    )
    assert not run_dir.exists()


def test_a_store_that_cannot_be_made_costs_one_line_and_not_the_command(product, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    done = product.finish("run", "--store", str(blocked / "store"), "--", "echo", "trained")
    assert done.returncode == 0
    assert done.stdout == b"trained\n"
    assert len(done.stderr.splitlines()) == 1


def test_a_head_that_cannot_start_costs_a_line_and_not_the_command(product, tmp_path):
    """As where chdb is not installed: the store cannot be opened."""
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(product.root, broken)
    tried = tmp_path / "tried"
    told = f"import pathlib\npathlib.Path({str(tried)!r}).touch()\nraise ImportError('no chdb here')\n"
    (broken / "storage" / "client.py").write_text(told)
    product.root = broken
    # The command outlasts the head, however long that takes to come as far as its store.
    command = f"until [ -e {tried} ]; do sleep 0.1; done; sleep 3; echo trained; exit 3"
    done = product.finish("run", "--", "bash", "-c", command)
    assert (done.returncode, done.stdout) == (3, b"trained\n")
    assert b"no chdb here" in done.stderr


def test_names_of_ours_in_the_users_folder_and_path_change_nothing(product, tmp_path):
    """A `collector.py`, a `storage/`, a `streams/` and a `sitecustomize.py` that imports them belong to the user."""
    theirs = tmp_path / "theirs"
    for package in ("storage", "streams"):
        (theirs / package).mkdir(parents=True)
        (theirs / package / "__init__.py").write_text("")
    (theirs / "collector.py").write_text("MINE = True\n")
    (theirs / "sitecustomize.py").write_text("import collector, storage, streams\n")
    owner = (
        product.store / "head.json"
    )  # without a head, which may take longer than a short command, nothing is complete
    waits = f"import time\nwhile not os.path.exists({str(owner)!r}): time.sleep(0.05)"
    code = f"import collector, os, sys\n{waits}\nsys.exit(11 if collector.MINE else 1)"
    done = product.finish("run", "--json", "--", *python(code), cwd=theirs, environ={"PYTHONPATH": str(theirs)})
    assert done.returncode == 11
    answer = json.loads(done.stdout)
    assert answer["complete"] is True, done.stderr


def test_an_endpoint_is_used_and_no_head_started(product, tmp_path):
    """`up` on one side, `run --endpoint` on the other, over TLS."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "head.pem"))
    head = product.start(
        "up",
        "--listen",
        "127.0.0.1:0",
        "--store",
        str(tmp_path / "head"),
        "--set",
        f"tls.certificate_file={tmp_path / 'head.pem'}",
        environ={"PACEHOUND_TOKEN": "s3cret"},
        stderr=subprocess.PIPE,
    )
    try:
        told = json.loads(wait_for(lambda: read(tmp_path / "head" / "head.json"), what="a head"))
        url, token = told["url"], with_pin("s3cret", told["pin"])
        assert url.startswith("https://")
        done = product.finish(
            "run", "--endpoint", url, "--job", "far", "--", "true", environ={"PACEHOUND_TOKEN": token}
        )
        assert done.returncode == 0
        assert b"job far: not watched: the command made no call" in done.stderr
        assert b"not everything" not in done.stderr
        assert not (product.store / "head.json").exists()
        by_variables = product.finish(
            "run",
            "--",
            "true",
            environ={
                "OTEL_EXPORTER_OTLP_ENDPOINT": url,
                "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20s3cret",
                "OTEL_EXPORTER_OTLP_CERTIFICATE": str(tmp_path / "ca.pem"),
            },
        )
        assert b"not everything" not in by_variables.stderr
    finally:
        head.terminate()
        head.communicate(timeout=20)
    assert head.returncode == 0
