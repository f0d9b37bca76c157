"""What the agent does with scripts that take orders: whoever orders whatever, the ranks of a host never differ."""

from __future__ import annotations

import os
import random
import socket
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.agent.trainer_listener import TrainerListener
from collector.agent.trainers import LEASE_NS, Trainers
from collector.host.rank_process import RankProcess
from pacehound.model.orders import Apply, Confirm, Offer, Withdraw
from pacehound.trainer import Control
from pacehound.trainer.meeting import MAX_LINE_BYTES, Peer, credentials
from pacehound.trainer.order import RECOVERY
from tests.fakes.examples import examples
from tests.fakes.ordered_job import KIND, MS, OrderedJob

SECOND = 1_000 * MS
TICKETS = st.integers(1, 2)
STEPS = st.integers(0, 8)

ACTS = st.one_of(
    st.tuples(st.just("rank"), st.integers(0, 2)),
    st.tuples(st.just("rank"), st.integers(0, 2)),
    st.builds(lambda ticket: ("order", Offer(ticket=ticket, kind=KIND)), TICKETS),
    st.builds(lambda ticket, step: ("order", Apply(ticket=ticket, step=step)), TICKETS, STEPS),
    st.builds(lambda ticket: ("order", Confirm(ticket=ticket)), TICKETS),
    st.builds(lambda ticket: ("order", Confirm(ticket=ticket)), TICKETS),
    st.builds(lambda ticket: ("order", Withdraw(ticket=ticket)), TICKETS),
    # Between what a rank does and when the agent reads of it.
    st.builds(lambda rank, what: ("unseen", (rank, what)), st.integers(0, 1), st.builds(Confirm, ticket=st.just(1))),
    st.builds(lambda rank, what: ("unseen", (rank, what)), st.integers(0, 1), st.builds(Withdraw, ticket=st.just(1))),
    st.sampled_from([("agent dies", 0), ("agent begins", 0), ("time passes", 0), ("rank dies", 2)]),
)
OFFERED: list[tuple[str, object]] = [("order", Offer(ticket=1, kind=KIND))]
ABLE = [*OFFERED, *[("rank", rank) for rank in (0, 1, 2)] * 2]
ARMED = [*ABLE, ("order", Apply(ticket=1, step=3)), *[("rank", rank) for rank in (0, 1, 2)]]
"""At the next step of each it is decided."""


@examples(25)
@given(begin=st.sampled_from([[], ABLE, ARMED, ARMED]), acts=st.lists(ACTS, max_size=25))
def test_ranks_of_a_host_never_differ_whoever_orders_whatever(
    begin: list[tuple[str, object]], acts: list[tuple[str, object]]
) -> None:
    """No matter what the controller does: in any order, with steps that are too near, while agents come and go."""
    folder = Path(tempfile.mkdtemp())
    with closing(OrderedJob(folder, random.Random(1), hosts=1, ranks=3, agrees=False, loss=0, per_s=20)) as job:
        for _ in range(2):
            job.hosts[0].look([], job.clock.now_ns)  # they say hello
        for what, upon in [*begin, *acts, *[("rank", rank) for _ in range(16) for rank in (0, 1, 2)]]:
            job.clock.now_ns += 210 * MS
            act(job, what, upon)
        for ticket in (1, 2):
            at_steps = {rank.applied.get(ticket) for rank in job.ranks if rank.is_alive}
            assert len(at_steps) == 1, [rank.applied for rank in job.ranks]
        assert not (job.hosts[0].folder / "notes").exists()


def act(job: OrderedJob, what: str, upon: Any) -> None:
    host = job.hosts[0]
    if what == "rank" and job.ranks[upon].is_alive:
        job.ranks[upon].arrive(agrees=False)
    elif what == "unseen":
        rank, order = upon
        job.ranks[rank].arrive(agrees=False)
        if host.trainers is not None and isinstance(order, Confirm):
            host.trainers.confirm(order)
        elif host.trainers is not None:
            host.trainers.withdraw(order)
        job.ranks[1 - rank].arrive(agrees=False)
    elif what == "agent dies":
        host.die()
    elif what == "agent begins" and host.trainers is None:
        host.start()
    elif what == "time passes":
        job.clock.now_ns += LEASE_NS
    elif what == "rank dies":
        job.ranks[2].die()
    host.look([upon] if what == "order" else [], job.clock.now_ns)


class Agent:
    """One agent in a folder of its own, without a job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pid = os.getpid()
        self.trainers = Trainers(TrainerListener(folder, self.who))
        self.now_ns = SECOND
        self.processes: list[RankProcess] = []

    def who(self, connection: socket.socket) -> Peer:
        return Peer(self.pid, credentials(connection).uid)

    def rank(self, rank: int, *kinds: str, world_size: int = 2, attempt: int = 0) -> Control:
        control = Control(str(self.folder), kinds, hello={"rank": rank, "world_size": world_size, "attempt": attempt})
        self.look()
        return control

    def look(self) -> None:
        for _ in range(3):
            self.trainers.look(self.processes)

    def offer(self, ticket: int = 1, kind: str = KIND, payload: str = "null") -> str:
        what = Offer(ticket=ticket, kind=kind, payload=payload)
        return self.trainers.offer(what, "to see", 0, self.processes, self.now_ns)

    def states(self) -> dict[int, str]:
        self.look()
        return {one.rank: one.state for one in self.trainers.answers()}

    def whys(self) -> list[str]:
        self.look()
        return [one.why for one in self.trainers.answers()]


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def knock(agent: Agent, *lines: bytes) -> socket.socket:
    """Somebody who connects and says something."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(agent.trainers.listener.folder / "agent.sock"))
    for line in lines:
        connection.send(line)
    agent.look()
    return connection


def test_a_rank_without_a_script_that_takes_orders_is_absent_and_one_that_cannot_says_why(agent: Agent) -> None:
    agent.processes = [RankProcess(attempt=0, rank=rank, pid=100 + rank, start_ticks=1) for rank in range(2)]
    agent.pid = 100
    control = agent.rank(0, "collect")
    assert agent.offer() == ""
    control.at_step(3)
    assert agent.states() == {0: "unable", 1: "absent"}
    assert agent.whys() == [
        "its script takes no 'microbatches', only: collect",
        "the script of rank 1 takes no orders (pacehound.trainer)",
    ]


def test_a_process_is_the_rank_of_its_ring_whatever_it_says(agent: Agent) -> None:
    agent.processes = [RankProcess(attempt=2, rank=5, pid=100, start_ticks=1)]
    agent.pid = 100
    agent.rank(4, KIND)
    assert (set(agent.trainers.listener.trainers), agent.trainers.listener.refused) == (set(), 1)
    agent.rank(-1, KIND)
    assert set(agent.trainers.listener.trainers) == {(2, 5)}


def test_nobody_is_a_rank_that_another_process_is(agent: Agent) -> None:
    first = agent.rank(0, KIND)
    agent.rank(0, KIND)
    assert agent.trainers.listener.refused == 1
    agent.processes = [RankProcess(attempt=0, rank=1, pid=999, start_ticks=1)]
    agent.rank(1, KIND)
    assert agent.trainers.listener.refused == 2
    first.close()
    agent.look()
    agent.rank(0, KIND)
    assert set(agent.trainers.listener.trainers) == {(0, 0)}


def test_another_users_process_is_not_heard(tmp_path: Path) -> None:
    door = TrainerListener(tmp_path, lambda connection: Peer(7, os.geteuid() + 1))
    Control(str(tmp_path), [KIND], hello={"rank": 0, "world_size": 1, "attempt": 0})
    for _ in range(3):
        door.look([])
    assert (door.trainers, door.refused) == ({}, 1)


@pytest.mark.parametrize(
    "said",
    [
        b"garbage\n",
        b"[1]\n",
        b"{}\n",
        b'{"say": "hello", "rank": "x", "attempt": 0, "world_size": 1, "agrees_every": 0}\n',
        b'{"say": "hello", "rank": -1, "attempt": 0, "world_size": 1, "agrees_every": 0}\n',
        b'{"say": "hello", "rank": 1e400, "attempt": 0, "world_size": 1, "agrees_every": 0}\n',
        b"[" * 10_000 + b"\n",
        b"x" * (MAX_LINE_BYTES + 10),
    ],
    ids=["garbage", "a list", "nothing", "no number", "no rank", "too much", "brackets", "a long line"],
)
def test_who_says_what_cannot_be_read_is_hung_up_on_and_counted(agent: Agent, said: bytes) -> None:
    connection = knock(agent, said)
    assert agent.trainers.listener.refused == 1
    connection.settimeout(1)
    assert connection.recv(1) == b""
    agent.rank(0, KIND)
    assert set(agent.trainers.listener.trainers) == {(0, 0)}


def test_what_a_script_makes_up_about_itself_does_no_harm(agent: Agent) -> None:
    hello = b'{"say":"hello","rank":0,"attempt":0,"world_size":1,"agrees_every":0}\n'
    with knock(agent, hello) as connection:
        agent.offer()
        for step in (b'"x"', b"1e99", b"99999999999999999999", b"null"):
            connection.send(b'{"say":"able","ticket":1,"step":' + step + b',"per_s":1}\n')
        connection.send(b'{"say":"able","ticket":1,"step":4,"per_s":Infinity}\n{"say":["able"],"ticket":1,"step":4}\n')
        assert agent.states() == {0: "able"}
        assert [(one.step, one.per_s) for one in agent.trainers.answers()] == [(4, 0.0)]


def test_a_newer_offer_ends_one_that_is_not_confirmed_and_waits_for_one_that_is(agent: Agent) -> None:
    control = agent.rank(0, KIND, world_size=1)
    trainers = agent.trainers
    assert agent.offer(1) == agent.offer(2) == ""
    assert agent.offer(1) == "it has ended here"
    control._open = None
    control.at_step(0)
    assert control._open is not None
    control._open.since_ns -= SECOND
    control.at_step(1)
    assert agent.states() == {0: "able"}
    assert trainers.apply(Apply(ticket=2, step=5), agent.now_ns) == ""
    assert trainers.confirm(Confirm(ticket=2)) == "rank 0 is not armed"
    assert trainers.apply(Apply(ticket=2, step=5), agent.now_ns) == "there is no such offer here"

    assert agent.offer(3) == ""
    control.at_step(2)
    assert control._open is not None
    control._open.since_ns -= SECOND
    control.at_step(3)
    agent.look()
    trainers.apply(Apply(ticket=3, step=5), agent.now_ns)
    control.at_step(4)
    agent.look()
    assert trainers.confirm(Confirm(ticket=3)) == ""
    assert agent.offer(4) == "another order waits for its step"
    assert trainers.step(agent.now_ns + LEASE_NS * 10)[0].state == "confirmed"
    found = control.at_step(5)
    assert found is not None
    assert (found.kind, found.why, found.step, found.ticket) == (KIND, "to see", 5, 3)
    assert agent.states() == {0: "applied"}
    assert trainers.withdraw(Withdraw(ticket=3)) == "a rank has come to its step, and applies it"
    trainers.step(agent.now_ns)
    assert agent.offer(4) == ""


def test_what_a_rank_in_a_long_step_has_not_read_comes_in_order_when_it_does(agent: Agent) -> None:
    control = agent.rank(0, KIND)
    trainer = agent.trainers.listener.trainers[0, 0]
    payload = f'"{"x" * 8_000}"'
    for ticket in range(1, 40):
        agent.offer(ticket, payload=payload)
    assert trainer.lines.has_unsent
    for step in range(10):
        control.at_step(step)
        agent.look()
    assert not trainer.lines.has_unsent
    assert control._open is not None
    assert control._open.order.ticket == 39
    assert agent.trainers.listener.trainers == {(0, 0): trainer}


def test_a_rank_that_never_reads_is_hung_up_on(agent: Agent) -> None:
    control = agent.rank(0, KIND)
    for ticket in range(1, 200):
        agent.offer(ticket, payload=f'"{"x" * 8_000}"')
    agent.look()
    assert agent.trainers.listener.trainers == {}
    assert agent.states() == {0: "absent"}
    assert control.at_step(1) is None


def test_an_offer_that_nobody_renews_ends(agent: Agent) -> None:
    agent.rank(0, KIND, world_size=1)
    agent.offer()
    assert agent.trainers.step(agent.now_ns + LEASE_NS - 1) != ()
    assert [one.why for one in agent.trainers.step(agent.now_ns + LEASE_NS + 1)] == ["the controller says nothing more"]
    assert not agent.trainers.is_busy


def lost(control: Control, survivors: object = (0, 1), **more: Any) -> None:
    word = {"digest": "a" * 32, "survivors": list(survivors), "payload": "{}", "within_ms": 2_000} | more  # type: ignore[call-overload]
    control._agent.say(say="lost", **word)


def test_what_ranks_ask_after_a_loss_is_told_of_together_and_looked_after_until_they_wait_no_more(
    tmp_path: Path,
) -> None:
    agent = Agent(tmp_path)
    ranks = [agent.rank(rank, KIND) for rank in (0, 1)]
    assert agent.trainers.question(agent.now_ns) is None
    lost(ranks[0])
    agent.look()
    assert agent.trainers.is_busy
    assert agent.trainers.look([])
    attempt, question = agent.trainers.question(agent.now_ns) or (None, None)
    assert (attempt, question and question.ranks, question and question.survivors) == (0, (0,), (0, 1))
    assert agent.trainers.question(agent.now_ns) is None, "it is told once"
    lost(ranks[1])
    agent.look()
    _, question = agent.trainers.question(agent.now_ns) or (None, None)
    assert question is not None
    assert question.ranks == (0, 1)
    assert agent.trainers.question(agent.now_ns + 3 * SECOND) is None
    assert not agent.trainers.is_busy


def test_an_answer_to_survivors_has_a_token_at_once_and_is_for_them_alone(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    ranks = [agent.rank(rank, KIND) for rank in (0, 1, 2)]
    agent.processes = [RankProcess(attempt=0, rank=rank, pid=rank, start_ticks=1) for rank in (0, 1, 2)]
    what = Offer(ticket=5, kind=RECOVERY, payload="null")
    assert agent.trainers.offer(what, "to see", 0, agent.processes[:2], agent.now_ns, (0, 1)) == ""
    assert set(agent.states()) == {0, 1}
    assert (tmp_path / "trainer" / "5.open").exists()
    for control in ranks[:2]:
        control._agent.say(say="armed", ticket=5, step=0, per_s=0.0)
    assert set(agent.states().values()) == {"armed"}
    assert agent.trainers.confirm(Confirm(ticket=5)) == ""
    assert (tmp_path / "trainer" / "5.go").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"digest": "../../etc/passwd"},
        {"digest": 7},
        {"survivors": []},
        {"survivors": [-1]},
        {"survivors": [1 << 40]},
        {"survivors": ["0"]},
        {"payload": "x" * 10_000},
        {"within_ms": "soon"},
    ],
)
def test_a_question_that_nobody_asks_is_none(tmp_path: Path, wrong: dict[str, Any]) -> None:
    agent = Agent(tmp_path)
    lost(agent.rank(0, KIND), **wrong)
    agent.look()
    assert agent.trainers.question(agent.now_ns) is None
    assert not agent.trainers.is_busy
