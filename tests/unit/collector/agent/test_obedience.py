"""Which orders an agent obeys: forged, damaged, foreign, early, expired, replayed and late ones are refused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from collector.agent.holding import Holder
from collector.agent.measuring import Measuring
from collector.agent.obedience import Obedience, ObeyedOrders, Refusal
from collector.agent.orders import HostNow, OrderBook
from collector.agent.profiling import Profiling
from collector.host.rank_process import RankProcess
from pacehound.bus.signing import Keys, Signer
from pacehound.errors import InvalidSetting, MalformedMessage
from pacehound.model.events import Command
from pacehound.model.orders import (
    ANY_ATTEMPT,
    LONGEST_LIFE_NS,
    MOST_PAYLOAD_BYTES,
    Apply,
    Confirm,
    Dismiss,
    Hold,
    Keep,
    Locate,
    Measure,
    Offer,
    Order,
    Prepare,
    Profile,
    Release,
    What,
    new_order,
    read_order,
)
from storage.rows import rows_of

JOB, HOST = "j", "node7"
NOW_NS = 1_800_000_000_000_000_000
SECOND_NS = 1_000_000_000
WHAT = Locate()
OURS, THEIRS = Signer.drawn(), Signer.drawn()


def order(
    number: int = 1, *, job: str = JOB, attempt: int = 0, issued_ns: int = NOW_NS, issuer: str = "a", what: What = WHAT
) -> Order:
    return new_order(
        what,
        job=job,
        attempt=attempt,
        issuer=issuer,
        number=number,
        now_ns=issued_ns,
        lives_ns=10 * SECOND_NS,
        why="to see",
    )


def obedience(state: ObeyedOrders | None = None) -> Obedience:
    return Obedience(Keys([OURS.key]), JOB, HOST, state)


def admit(agent: Obedience, command: Command, now_ns: int = NOW_NS) -> Order | str:
    found = agent.admit(command, frozenset({0}), now_ns)
    return found.refused if isinstance(found, Refusal) else found


def test_an_order_of_a_trusted_key_is_obeyed_once() -> None:
    agent, given = obedience(), order()
    assert admit(agent, OURS.signed(given)) == given
    assert admit(agent, OURS.signed(given)) == "replayed"


def test_an_agent_that_starts_again_remembers_what_it_has_obeyed() -> None:
    agent, given = obedience(), order(5)
    admit(agent, OURS.signed(given))
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(agent.state), type=ObeyedOrders)
    assert admit(obedience(kept), OURS.signed(given)) == "replayed"
    assert admit(obedience(kept), OURS.signed(order(4))) == "out of order"


def test_who_only_asks_need_not_know_the_attempt() -> None:
    agent = obedience()
    assert isinstance(agent.admit(OURS.signed(order(1, attempt=ANY_ATTEMPT)), frozenset({4}), NOW_NS), Order)
    nobody = agent.admit(OURS.signed(order(2, attempt=ANY_ATTEMPT)), frozenset(), NOW_NS)
    assert isinstance(nobody, Refusal)
    assert nobody.refused == "foreign"
    holding = Hold(trap=1, round=1, hold_ms=1, lease_ms=1)
    assert admit(agent, OURS.signed(order(3, attempt=ANY_ATTEMPT, what=holding))) == "damaged"


def test_on_a_host_without_ranks_only_measuring_is_obeyed() -> None:
    agent, idle = obedience(), frozenset[int]()
    seats = {"rendezvous": "h:1", "world_size": 2, "hosts": ("a", "b"), "per_host": 1}
    for number, what in enumerate((Locate(idle=True), Prepare(trap=1, **seats), Measure(trap=1), Dismiss(trap=1)), 1):
        given = order(number, what=what, attempt=ANY_ATTEMPT)
        assert agent.admit(OURS.signed(given), idle, NOW_NS) == given
    for number, what in enumerate((Locate(), Hold(trap=1, round=1, hold_ms=1, lease_ms=1), Profile(for_ms=1)), 10):
        found = agent.admit(OURS.signed(order(number, what=what)), idle, NOW_NS)
        assert isinstance(found, Refusal)
        assert (found.refused, found.reason) == ("foreign", f"no rank of attempt 0 is on {HOST}")


def test_two_who_sign_with_one_key_do_not_stand_in_each_others_way() -> None:
    agent = obedience()
    assert isinstance(admit(agent, OURS.signed(order(900, issuer="pause"))), Order)
    assert isinstance(admit(agent, OURS.signed(order(1, issuer="resume"))), Order)
    assert isinstance(admit(agent, OURS.signed(order(901, issuer="pause"))), Order)
    assert admit(agent, OURS.signed(order(900, issuer="pause"))) == "out of order"


def test_what_was_forgotten_is_not_obeyed_again_even_where_the_clock_is_set_back() -> None:
    agent = obedience()
    minutes = [NOW_NS + minute * 60 * SECOND_NS for minute in range(10)]
    given = [
        (OURS.signed(order(number, issued_ns=at_ns, issuer=f"issuer {number}")), at_ns)
        for number, at_ns in enumerate(minutes, 1)
    ]
    assert all(isinstance(admit(agent, one, at_ns), Order) for one, at_ns in given)
    assert len(agent.state.obeyed) <= 3
    assert len(agent.state.numbers) <= 3
    assert {admit(agent, one, at_ns) for one, at_ns in given} == {"replayed", "out of order"}


def test_more_orders_than_are_remembered_are_not_obeyed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.agent.obedience.MOST_REMEMBERED", 10)
    agent = obedience()
    given = [OURS.signed(order(number, issued_ns=NOW_NS + number)) for number in range(1, 40)]
    assert all(isinstance(admit(agent, one), Order) for one in given)
    assert len(agent.state.obeyed) == 10
    assert {admit(agent, one) for one in given} == {"replayed", "out of order"}


HOSTILE: dict[str, Callable[[random.Random, Command], Command]] = {
    "of a stranger's key": lambda chance, good: THEIRS.signed(read_order(good.order)),
    "under our name": lambda chance, good: replace(THEIRS.signed(read_order(good.order)), key=OURS.key),
    "another order under a good signature": lambda chance, good: replace(
        good, order=good.order.replace(b"locate", b"loc\\u0061te")
    ),
    "a bit of the order turned": lambda chance, good: replace(good, order=turned(good.order, chance)),
    "a bit of the signature turned": lambda chance, good: replace(good, signature=turned(good.signature, chance)),
    "cut short": lambda chance, good: replace(good, order=good.order[: chance.randrange(len(good.order))]),
    "no signature": lambda chance, good: replace(good, signature=b""),
    "signed garbage": lambda chance, good: signed_bytes(chance.randbytes(chance.randrange(200))),
    "for another job": lambda chance, good: OURS.signed(order(7, job="k")),
    "for another attempt": lambda chance, good: OURS.signed(order(7, attempt=3)),
    "for another host": lambda chance, good: OURS.signed(msgspec.structs.replace(order(7), hosts=("node8",))),
    "of the future": lambda chance, good: OURS.signed(order(7, issued_ns=NOW_NS + 60 * SECOND_NS)),
    "of the past": lambda chance, good: OURS.signed(order(7, issued_ns=NOW_NS - 11 * SECOND_NS)),
    "that lives for ever": lambda chance, good: OURS.signed(
        msgspec.structs.replace(order(7), expires_ns=NOW_NS + LONGEST_LIFE_NS + 1)
    ),
    "once more": lambda chance, good: good,
    "of before": lambda chance, good: OURS.signed(order(1)),
}


def turned(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


def signed_bytes(body: bytes) -> Command:
    return replace(OURS.signed(order()), order=body, signature=OURS._private.sign(body))


REFUSED = {
    "of a stranger's key": "forged",
    "under our name": "forged",
    "another order under a good signature": "forged",
    "a bit of the order turned": "forged",
    "a bit of the signature turned": "forged",
    "cut short": "forged",
    "no signature": "forged",
    "signed garbage": "damaged",
    "that lives for ever": "damaged",
    "for another job": "foreign",
    "for another attempt": "foreign",
    "for another host": "foreign",
    "of the future": "early",
    "of the past": "expired",
    "once more": "replayed",
    "of before": "out of order",
}


@pytest.mark.parametrize("n_commands", [2_000, pytest.param(10_000, marks=pytest.mark.prove)])
def test_thousands_of_hostile_commands_are_refused_and_each_leaves_a_line_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_commands: int
) -> None:
    monkeypatch.setattr("collector.agent.orders.logger.disabled", True)
    chance = random.Random(n_commands)
    agent, holder, profiling = obedience(), Holder(tmp_path), Mock(spec=Profiling)
    measuring = Mock(spec=Measuring)
    trainers: Any = SimpleNamespace(attempts=frozenset(), world_size=lambda attempt: 0)  # and no more may be asked
    book = OrderBook(agent, holder, measuring, profiling, trainers, JOB, HOST)
    rank = RankProcess(attempt=0, rank=0, pid=1 << 30, start_ticks=1)
    host = HostNow(processes=(rank,), timeouts_ms={}, world_sizes={}, now_ns=1, unix_ns=NOW_NS)
    good = OURS.signed(order(3))
    assert [one.refused for one in book.take([good], host)] == [""]
    kinds = [chance.choice(list(HOSTILE)) for _ in range(n_commands)]
    commands = [HOSTILE[kind](chance, good) for kind in kinds]
    results = book.take(commands, host)
    assert [one.refused for one in results] == [REFUSED[kind] for kind in kinds]
    assert all(one.reason for one in results)
    assert agent.refused == Counter(one.refused for one in results)
    assert set(agent.refused) == set(REFUSED.values())
    # Two lines of each: what was asked, and what came of it. A second one with the same bytes is the same event.
    answered = [row for one in results for _, row in rows_of(one)]
    assert len({row["event_id"] for row in answered}) == n_commands
    assert all(row["refused"] and row["reason"] for row in answered)
    asked = {row["event_id"] for one in commands for _, row in rows_of(one)}
    assert len(asked) == len({(one.key, one.order, one.signature) for one in commands})
    assert (measuring.mock_calls, profiling.mock_calls, holder.is_holding) == ([], [], False)
    assert isinstance(admit(agent, OURS.signed(order(9))), Order), "and a good one is still obeyed"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"id": "x"}, "hexadecimal"),
        ({"number": 0}, "number 0"),
        ({"expires_ns": NOW_NS}, "it lives 0 s"),
        ({"ranks": tuple(range(20_000))}, "20000 ranks"),
        ({"what": Hold(trap=0, round=1, hold_ms=1, lease_ms=1)}, "trap 0"),
        ({"what": Hold(trap=1, round=-1, hold_ms=1, lease_ms=1)}, "at round -1"),
        ({"what": Keep(trap=1, lease_ms=60_000)}, "a lease of 60000 ms"),
        ({"what": Release(trap=-1)}, "trap -1"),
        ({"what": Offer(ticket=0, kind="collect")}, "ticket 0"),
        ({"what": Offer(ticket=1, kind="Collect it")}, "a kind 'Collect it'"),
        ({"what": Offer(ticket=1, kind="collect", payload="{")}, "a payload that is no JSON"),
        ({"what": Offer(ticket=1, kind="collect", payload="1" * MOST_PAYLOAD_BYTES)}, "a payload of 8194 bytes"),
        ({"what": Apply(ticket=1, step=-1)}, "step -1"),
        ({"what": Confirm(ticket=1 << 63)}, "ticket 9223372036854775808"),
        ({"what": Confirm(ticket=1), "attempt": -1}, "attempt -1"),
        ({"what": Prepare(trap=1, rendezvous="h:1", world_size=2, ranks=(3, 1))}, r"beside the ranks \(3, 1\)"),
        ({"what": Prepare(trap=1, rendezvous="h:1", world_size=1, ranks=(1 << 20,))}, "the ranks 1048576 to"),
        ({"what": Prepare(trap=1, rendezvous="h:1", world_size=3, hosts=("a", "b"), per_host=1)}, "1 on each of 2"),
        ({"what": Prepare(trap=1, rendezvous="h:1", world_size=2, hosts=("a", "a"), per_host=1)}, "each of 2 hosts"),
    ],
)
def test_an_order_that_nobody_writes_is_not_read(changed: dict[str, object], why: str) -> None:
    with pytest.raises(MalformedMessage, match=why):
        read_order(msgspec.json.encode(msgspec.structs.replace(order(), **changed)))


def test_a_key_that_is_none_is_said_to_be() -> None:
    with pytest.raises(InvalidSetting, match="'abc' is no public key; write its 64 hexadecimal digits"):
        Keys(["abc"])
