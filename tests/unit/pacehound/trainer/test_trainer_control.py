"""A script's side: where nobody listens nothing happens, and no error of ours reaches it, whatever the agent does."""

from __future__ import annotations

import gc
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pacehound import trainer
from pacehound.trainer import Control, Order
from pacehound.trainer.meeting import FOLDER, MAX_LINE_BYTES, Bell, Lines, address, credentials
from pacehound.trainer.token import Token
from tests.fakes.ordered_job import MS, Clock

ROOT = Path(__file__).parents[4]
HELLO = {"rank": 1, "world_size": 2, "attempt": 0}


class Listener:
    """The agent's end, by hand."""

    def __init__(self, run_dir: Path) -> None:
        self.folder = run_dir / FOLDER
        self.folder.mkdir(exist_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        (self.folder / "agent.sock").unlink(missing_ok=True)
        with address(str(self.folder)) as where:
            self.listener.bind(where)
        self.listener.listen()
        self.bell = Bell(str(self.folder))
        self.bell.ring()

    def taken(self) -> Lines:
        connection, _ = self.listener.accept()
        return Lines(connection)

    def close(self) -> None:
        self.listener.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("pacehound.trainer.control.time", clock)
    return clock


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


class Told:
    """A control with an agent that says what a test wants."""

    def __init__(self, run_dir: Path, clock: Clock, *kinds: str, **how: Any) -> None:
        self.clock, self.step = clock, 0
        self.listener = Listener(run_dir)
        self.control = Control(str(run_dir), kinds or ("microbatches",), hello=HELLO, **how)
        self.lines = self.listener.taken()
        self.hello = self.lines.take()

    def tell(self, **word: Any) -> None:
        self.lines.say(**word)
        self.listener.bell.ring()

    def steps(self, n: int = 1) -> list[Order]:
        found = []
        for _ in range(n):
            self.clock.now_ns += 300 * MS
            found.append(self.control.at_step(self.step))
            self.step += 1
        return [one for one in found if one is not None]

    def said(self) -> list[dict[str, Any]]:
        return self.lines.take()

    def offer(self, kind: str = "microbatches", payload: str = "[3, 5]", ticket: int = 7) -> list[dict[str, Any]]:
        self.tell(say="offer", ticket=ticket, kind=kind, payload=payload, why="a test")
        assert self.steps(2) == []
        return self.said()

    def arm(self, at_step: int, ticket: int = 7) -> Token:
        token = Token(str(self.listener.folder), ticket)
        token.make()
        self.tell(say="apply", ticket=ticket, step=at_step)
        self.steps()
        return token


@pytest.fixture
def told(run_dir: Path, clock: Clock) -> Told:
    return Told(run_dir, clock)


def test_it_loads_the_standard_library_alone() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules)\n"
        "from pacehound import trainer\n"
        "trainer.connect('collect').at_step(0)\n"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert loaded - {"pacehound"} <= set(sys.stdlib_module_names)
    assert "pacehound" in loaded


def test_a_script_ends_without_a_word_of_ours_while_an_agent_listens(run_dir: Path) -> None:
    listener = Listener(run_dir)
    code = (
        "from pacehound import trainer\n"
        "control = trainer.connect('collect', rank=0, world_size=1)\n"
        "assert control._agent.lines is not None\n"
        "print(control.at_step(0))"
    )
    environ = {**os.environ, "PACEHOUND_RUN_DIR": str(run_dir), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", code]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "None\n", "")
    assert listener.taken().take()[0]["rank"] == 0


@pytest.mark.parametrize("run_dir", ["", "/nowhere/at/all", "/proc/self/cwd\0", "/dev/null"])
def test_where_nobody_listens_nothing_happens(monkeypatch: pytest.MonkeyPatch, run_dir: str) -> None:
    if "\0" not in run_dir:
        monkeypatch.setenv("PACEHOUND_RUN_DIR", run_dir)
    control = trainer.connect("collect")
    assert [control.at_step(step) for step in range(10)] == [None] * 10
    assert not Path("/nowhere").exists()


@pytest.mark.parametrize("step", [None, "x", float("nan"), object(), [1]])
def test_a_step_that_is_none_raises_nothing(told: Told, step: Any) -> None:
    told.offer()
    assert told.control.at_step(step) is None
    assert told.steps(3) == []


@pytest.mark.parametrize(
    ("kinds", "every", "why"),
    [(("Micro batches",), 1, "no kind of orders"), (("",), 1, "no kind"), ((), 0, "agree_every is 0")],
)
def test_a_wrong_argument_is_said_at_once(kinds: tuple[str, ...], every: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        trainer.connect(*kinds, agree_every=every)


def test_a_rank_that_is_no_number_is_nobody_rather_than_an_error(
    monkeypatch: pytest.MonkeyPatch, run_dir: Path
) -> None:
    monkeypatch.setenv("PACEHOUND_RUN_DIR", str(run_dir))
    monkeypatch.setenv("RANK", "first")
    assert trainer.connect("collect", world_size="many").at_step(1) is None  # type: ignore[arg-type]


def test_it_says_what_it_takes_then_how_far_it_is_and_applies_what_is_confirmed(told: Told) -> None:
    assert told.hello == [{"say": "hello", "kinds": ["microbatches"], "agrees_every": 0, **HELLO}]
    (able,) = told.offer()
    assert (able["say"], able["ticket"], able["step"]) == ("able", 7, 1)
    assert able["per_s"] == pytest.approx(1 / 0.3)
    token = told.arm(5)
    assert [one["say"] for one in told.said()] == ["armed"]
    assert token.confirm()
    assert told.steps(2) == []
    assert told.steps() == [Order("microbatches", [3, 5], "a test", 5, 7)]
    assert told.said()[-1] == {"say": "applied", "ticket": 7, "step": 5}
    assert told.steps(5) == []
    assert told.said() == []


def test_what_is_not_confirmed_when_its_step_comes_is_never_applied(told: Told) -> None:
    told.offer()
    token = told.arm(3)
    assert told.steps(3) == []
    assert told.said()[-1]["say"] == "kept"
    assert not token.confirm()


def test_a_rank_that_has_passed_the_step_takes_it_back_for_its_host(told: Told) -> None:
    told.offer()
    token = told.arm(2)
    assert told.said() == [
        {"say": "kept", "ticket": 7, "step": 2, "why": "it had passed step 2 by the time it was told"}
    ]
    assert token.is_withdrawn


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_an_agent_that_dies_leaves_the_decision_to_the_token(told: Told, run_dir: Path, is_confirmed: bool) -> None:
    told.offer()
    token = told.arm(6)
    if is_confirmed:
        token.confirm()
    told.lines.close()
    told.listener.close()
    told.listener.bell.ring()
    assert told.steps(2) == []
    successor = Listener(run_dir)
    found = told.steps(5)
    assert [one.step for one in found] == ([6] if is_confirmed else [])
    said = successor.taken().take()
    assert said[0]["say"] == "hello"
    assert said[-1]["say"] == ("applied" if is_confirmed else "kept")


def test_while_nothing_is_due_a_step_does_nothing(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """No system call: two numbers are compared."""
    told.steps()
    looked: list[int] = []
    monkeypatch.setattr(told.control, "_before", lambda step, may_apply: looked.append(step) or 0)
    told.steps(100)
    assert looked == []
    told.tell(say="unheard")
    told.steps()
    assert looked == [101]


def test_what_was_decided_while_no_agent_listened_is_said_to_the_next(told: Told, run_dir: Path) -> None:
    told.offer()
    told.arm(4).confirm()
    told.lines.close()
    assert [one.step for one in told.steps(3)] == [4]
    told.listener.close()
    successor = Listener(run_dir)
    told.steps()
    assert successor.taken().take()[1:] == [{"say": "applied", "ticket": 7, "step": 4}]


def test_an_agent_that_dies_before_the_step_is_told_is_forgotten(told: Told) -> None:
    told.offer()
    told.lines.close()
    told.listener.bell.ring()
    told.steps(1)
    assert told.control._open is None
    assert told.control._due == sys.maxsize


@pytest.mark.parametrize(
    ("can", "why"),
    [
        (lambda order: order.payload == [3, 5], ""),
        (lambda order: False, "its script says no"),
        (lambda order: None, "its script says no"),
        (lambda order: f"{len(order.payload)} numbers", "2 numbers"),
        (lambda order: order.payload["x"], "its script cannot say: TypeError: list indices"),
    ],
)
def test_the_script_is_asked_whether_it_can(
    run_dir: Path, clock: Clock, can: Callable[[Order], bool | str], why: str
) -> None:
    told = Told(run_dir, clock, can=can)
    (said,) = told.offer()
    assert said["say"] == ("unable" if why else "able")
    assert said.get("why", "").startswith(why)


def test_a_script_that_names_no_kinds_takes_none(run_dir: Path, clock: Clock) -> None:
    told = Told(run_dir, clock, "collect")
    assert told.offer()[0]["why"] == "its script takes no 'microbatches', only: collect"
    none = Control("", ())
    assert none.at_step(1) is None
    listener = Told(run_dir, clock)
    listener.control._kinds = ()
    assert listener.offer()[0]["why"].endswith("names no kinds in trainer.connect")


@pytest.mark.parametrize(
    "word",
    [
        b"garbage\n",
        b"[]\n",
        b'{"say":"offer"}\n',
        b'{"say":"offer","ticket":1,"kind":"microbatches","payload":"{","why":""}\n',
        b'{"say":"apply","ticket":7}\n',
        b'{"say":"apply","ticket":7,"step":"soon"}\n',
        b'{"ticket":{}}\n',
        b"y" * (MAX_LINE_BYTES + 1),
        b'{"say":"unheard"}\n',
    ],
)
def test_an_agent_that_says_nonsense_costs_the_script_nothing(told: Told, run_dir: Path, word: bytes) -> None:
    told.offer()
    told.lines.socket.setblocking(True)
    told.lines.socket.send(word)
    told.listener.bell.ring()
    assert told.steps(20) == []


def test_an_error_of_ours_switches_it_off_takes_back_what_is_armed_and_is_noted(told: Told, run_dir: Path) -> None:
    told.offer()
    token = told.arm(9)
    token.confirm()
    told.tell(say="apply", ticket=7, step="soon")
    assert told.steps(20) == []
    assert token.is_withdrawn
    (note,) = (run_dir / "notes").glob("*.json")
    assert "switched off in rank 1: ValueError" in json.loads(note.read_text())["notes"][0]


def test_who_does_not_read_is_not_waited_for(told: Told) -> None:
    told.offer()
    for _ in range(5):
        told.control._say(say="x" * 200_000)
    assert told.control._agent.lines is None
    assert told.steps(3) == []


def test_another_users_agent_is_not_heard(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Listener(run_dir)
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    assert Control(str(run_dir), ["a"], hello=HELLO)._agent.lines is None


def test_the_kernel_says_who_is_at_both_ends(told: Told) -> None:
    assert told.control._agent.lines is not None
    assert (
        credentials(told.control._agent.lines.socket) == credentials(told.lines.socket) == (os.getpid(), os.geteuid())
    )


def test_a_forked_worker_does_not_speak_for_its_rank(told: Told) -> None:
    told.offer()
    token = told.arm(6)
    token.confirm()
    told.said()
    child = os.fork()
    if child == 0:
        applied = [told.control.at_step(step) for step in range(4, 30)]
        os._exit(0 if applied == [None] * 26 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert told.said() == []
    assert [one.step for one in told.steps(10)] == [6]
    assert told.said()[-1]["say"] == "applied"


def test_a_run_folder_of_any_depth_will_do(tmp_path: Path, clock: Clock) -> None:
    deep = tmp_path / ("d" * 120) / ("e" * 120)
    deep.mkdir(parents=True)
    told = Told(deep, clock)
    assert told.offer()[0]["say"] == "able"


def test_a_control_that_nobody_holds_is_collected(run_dir: Path) -> None:
    Listener(run_dir)
    opened = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        Control(str(run_dir), ["a"], hello=HELLO)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= opened + 1


class AllReduce:
    """Threads that meet, and the smallest of each number."""

    def __init__(self, n: int) -> None:
        self.barrier = threading.Barrier(n)
        self.values: dict[int, list[int]] = {}
        self.calls = 0

    def of(self, rank: int) -> Callable[[list[int]], list[int]]:
        def agree(values: list[int]) -> list[int]:
            self.values[rank] = values
            self.barrier.wait(20)
            smallest = [min(one) for one in zip(*self.values.values(), strict=True)]
            self.calls += rank == 0
            self.barrier.wait(20)
            return smallest

        return agree


@pytest.mark.parametrize("confirmed", [(0,), (0, 1)])
def test_ranks_that_agree_apply_only_what_all_of_them_have(tmp_path: Path, clock: Clock, confirmed: tuple[int]) -> None:
    """Two hosts, of which perhaps one has not heard that the order is confirmed."""
    together = AllReduce(2)
    ranks = []
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
        ranks.append(Told(tmp_path / str(rank), clock, agree=together.of(rank), agree_every=5))
        assert ranks[rank].offer()[0]["say"] == "able"
        token = ranks[rank].arm(5)
        if rank in confirmed:
            token.confirm()
    found: list[list[Order]] = [[], []]

    def go_on(rank: int) -> None:
        found[rank] = ranks[rank].steps(15)

    threads = [threading.Thread(target=go_on, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert together.calls == 3  # at 5, 10 and 15
    assert [[one.step for one in each] for each in found] == ([[5], [5]] if len(confirmed) == 2 else [[], []])
    words = {one.said()[-1]["say"] for one in ranks}
    assert words == ({"applied"} if len(confirmed) == 2 else {"kept"})


def test_ranks_agree_at_the_same_steps_whether_anybody_listens_or_not() -> None:
    asked: list[list[int]] = []

    def agree(values: list[int]) -> list[int]:
        asked.append(values)
        return values

    control = Control("", ["a"], agree=agree, agree_every=4)
    at = []
    for step in [2, 3, 3, 4, 4, 5, 9, 10, 12]:  # accumulation repeats a step, a resumed run leaves some out
        n = len(asked)
        control.at_step(step)
        at += [step] * (len(asked) - n)
    assert at == [4, 9, 12]
    assert asked == [[0, 0]] * 3


def test_what_the_scripts_own_all_reduce_raises_is_the_scripts(run_dir: Path) -> None:
    def agree(values: list[int]) -> list[int]:
        raise RuntimeError("a peer has gone")

    control = Control("", ["a"], agree=agree, agree_every=1)
    control.at_step(0)
    with pytest.raises(RuntimeError, match="a peer has gone"):
        control.at_step(1)


def test_what_an_all_reduce_gives_that_is_no_answer_agrees_to_nothing(run_dir: Path, clock: Clock) -> None:
    told = Told(run_dir, clock, agree=lambda values: None, agree_every=1)
    assert told.steps(5) == []
    assert told.control._agree is not None


def test_a_control_that_is_closed_takes_back_what_was_armed(told: Told) -> None:
    told.offer()
    token = told.arm(9)
    token.confirm()
    told.control.close()
    assert token.is_withdrawn
    assert told.steps(20) == []


def test_every_script_says_how_fast_it_goes_whatever_it_takes_and_applies_nothing(run_dir: Path, clock: Clock) -> None:
    told = Told(run_dir, clock, "collect", can=lambda order: "not now")
    (able,) = told.offer("pacehound.pace", "null")
    assert (able["say"], able["ticket"]) == ("able", 7)
    assert able["per_s"] == pytest.approx(1 / 0.3)
    told.arm(told.step + 2)
    assert told.steps(5) == []
    assert {word["say"] for word in told.said()} == {"able"}


def test_micro_batches_are_said_of_a_script_that_takes_orders_for_them_alone() -> None:
    assert trainer.connect("microbatches", micro_batches=8)._hello["micro_batches"] == 8
    assert trainer.connect("microbatches")._hello["micro_batches"] == 0
    with pytest.raises(ValueError, match="takes orders 'microbatches'"):
        trainer.connect("collect", micro_batches=8)
    with pytest.raises(ValueError, match="at least 1"):
        trainer.connect("microbatches", micro_batches=-1)
