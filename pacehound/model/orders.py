"""What a controller tells the agents of a job to do, as the bytes that are signed; and what may be believed of them.

An order says who is meant, what is to be done, since when and until when it stands, and why. Its number grows with each
order of its issuer, so that one that was delayed is told from one that is due.
"""

from __future__ import annotations

import re
import secrets
from typing import Literal

import msgspec

from pacehound.errors import MalformedMessage
from pacehound.model.json_decoders import decoder_of
from pacehound.model.json_documents import UNREADABLE_JSON

LONGEST_LIFE_NS = 60_000_000_000
"""Between issue and expiry: what is not carried out within a minute is decided anew."""

MOST_SKEW_NS = 5_000_000_000
"""Clocks of a fleet differ by less; an order from further ahead is not of now."""

LONGEST_LEASE_MS = 2_000
"""Whoever holds ranks says so again within this time, or they go on."""

LONGEST_PROFILE_MS = 600_000
"""What is on for longer is no closer look but the way in which a job is watched."""

ANY_ATTEMPT = -1
"""Whichever attempt of a job runs: of who only asks, and of who lets go."""

ANY_TRAP = 0
"""Whichever hold is under way, in a release."""

MOST_PAYLOAD_BYTES = 8_192
"""Of an offer, as JSON within JSON: with the rest of its order, and a third more for base64, less than the longest
string of an event (`pacehound.model.believed.MAX_TEXT_BYTES`)."""

MOST_RANKS = 16_384
MOST_WORLD = 1 << 20
MOST_TEXT = 1_000
_KIND = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_DECISION = re.compile(r"[0-9a-f]{32}")
_RENDEZVOUS = re.compile(r"[0-9A-Za-z.:\[\]-]{1,250}:[0-9]{1,5}")


class Locate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="locate"):
    """Say how far each rank is; nothing is done to it.

    Attributes
    ----------
    idle
        Asks hosts on which no rank is: whether they could be measured.

    """

    idle: bool = False


class Hold(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="hold"):
    """Stop every rank at its first call after a round of the communicator of all ranks.

    Attributes
    ----------
    trap
        Names this hold; never used before.
    round
        The number of a collective there that no rank has launched yet.
    hold_ms
        The hold ends after so long at the latest.
    lease_ms
        And when nothing was heard from the controller for so long.

    """

    trap: int
    round: int
    hold_ms: int
    lease_ms: int


class Keep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="keep"):
    """The controller lives: the hold goes on. With `all_held`, all ranks are there, and none waits for another."""

    trap: int
    lease_ms: int
    all_held: bool = False


class Release(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="release"):
    """The hold ends: this one, or whichever is under way (`ANY_TRAP`)."""

    trap: int


class Prepare(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="prepare"):
    """Start a process beside each rank that will measure; the ranks go on meanwhile. Said again, the controller lives.

    Attributes
    ----------
    trap
        The hold that they will measure in.
    rendezvous
        Where the processes meet: ADDRESS:PORT on the host of rank 0.
    world_size
        How many they are.
    ranks
        Beside which, in order; empty: beside all.
    hosts, per_host
        On hosts where nothing runs: so many on each of these, in order.

    """

    trap: int
    rendezvous: str
    world_size: int
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    per_host: int = 0


class Measure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="measure"):
    """All ranks are held: the processes measure now.

    Attributes
    ----------
    within_ms
        Where ranks may not stand still for as long as measuring may take; 0: they may.

    """

    trap: int
    within_ms: int = 0


class Dismiss(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="dismiss"):
    """The processes that were started end, whatever they do."""

    trap: int


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="profile"):
    """Look closer for a while: at the machine each second, at what each rank does, and at the times of its calls.

    Attributes
    ----------
    for_ms
        It ends by itself after so long; 0: what goes on ends now.

    """

    for_ms: int


class Offer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="offer"):
    """Say of each rank whether its script can do this (`pacehound.trainer`); nothing is done yet.

    Attributes
    ----------
    ticket
        Names it; never used before.
    kind
        Which of the script's own.
    payload
        JSON, for the script.

    """

    ticket: int
    kind: str
    payload: str = "null"


class Apply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="apply"):
    """All ranks can: each applies it at this step, if all have been told by then."""

    ticket: int
    step: int


class Confirm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="confirm"):
    """All ranks have been told: it stands."""

    ticket: int


class Withdraw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="withdraw"):
    """It is not applied, where no rank of the host has come to its step."""

    ticket: int


class Wake(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="wake"):
    """Let stopped processes of ranks go on (SIGCONT); nothing is done to one that runs, or is another by now.

    Attributes
    ----------
    processes
        Rank and process id of each.

    """

    processes: tuple[tuple[int, int], ...]


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="answer"):
    """What somebody says to a decision that waits for a yes; for who has asked, and not for agents.

    Attributes
    ----------
    decision
        Its id.
    approves
        Yes, or no.
    by
        Who says so.

    """

    decision: str
    approves: bool
    by: str


What = (
    Locate | Hold | Keep | Release | Prepare | Measure | Dismiss | Profile | Offer | Apply | Confirm | Withdraw | Wake
    | Answer
)  # fmt: skip
WhatName = Literal[
    "locate", "hold", "keep", "release", "prepare", "measure", "dismiss", "profile", "offer", "apply", "confirm",
    "withdraw", "wake", "answer",
]  # fmt: skip


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One order.

    Attributes
    ----------
    id
        32 hexadecimal digits, drawn by chance.
    issuer
        Who gives it, among those who sign with the same key: drawn by chance.
    number
        Larger than that of every earlier order of the same issuer.
    attempt
        Of the job; of another one it is foreign. `ANY_ATTEMPT` in what holds nobody.
    hosts, ranks
        Who is meant; empty: all of the job's.
    issued_ns, expires_ns
        Unix time; carried out between the two.
    why
        A sentence for people.
    incident
        The incident for whose sake; empty: somebody asked by hand.

    """

    id: str
    issuer: str
    number: int
    job: str
    attempt: int
    hosts: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    issued_ns: int
    expires_ns: int
    why: str
    incident: str = ""
    what: What

    @property
    def what_name(self) -> WhatName:
        """`locate`, `hold` …."""
        name: WhatName = self.what.__struct_config__.tag  # type: ignore[assignment]
        return name

    def is_for(self, host: str) -> bool:
        """Whether a host is meant."""
        return not self.hosts or host in self.hosts


def new_order(
    what: What,
    *,
    job: str,
    attempt: int,
    issuer: str,
    number: int,
    now_ns: int,
    lives_ns: int,
    why: str,
    incident: str = "",
    ranks: tuple[int, ...] = (),
) -> Order:
    """An order of this moment."""
    return Order(
        id=secrets.token_hex(16),
        issuer=issuer,
        number=number,
        job=job,
        attempt=attempt,
        ranks=ranks,
        issued_ns=now_ns,
        expires_ns=now_ns + lives_ns,
        why=why,
        incident=incident,
        what=what,
    )


def write_order(order: Order) -> bytes:
    """The bytes that are signed, and that travel."""
    return msgspec.json.encode(order)


def read_order(body: bytes) -> Order:
    """The order of these bytes.

    Raises
    ------
    MalformedMessage
        They are no order, or one that nobody writes.

    Examples
    --------
    >>> order = new_order(Locate(), job="j", attempt=0, issuer="a", number=1, now_ns=5, lives_ns=9, why="to see")
    >>> read_order(write_order(order)) == order
    True

    """
    try:
        order: Order = decoder_of(Order).decode(body)
    except UNREADABLE_JSON as error:
        raise MalformedMessage(f"no order: {error}") from error
    if wrong := _wrong(order):
        raise MalformedMessage(f"no order that anybody writes: {wrong}")
    return order


def _wrong(order: Order) -> str:
    what = order.what
    if len(order.id) != 32 or not set(order.id) <= set("0123456789abcdef"):
        return f"its id {order.id[:40]!r} is not 32 hexadecimal digits"
    lowest = 0 if isinstance(what, Hold | Keep | Wake | Apply | Confirm) else ANY_ATTEMPT
    if order.number < 1 or order.attempt < lowest:
        return f"number {order.number} of attempt {order.attempt}"
    if not 0 < order.expires_ns - order.issued_ns <= LONGEST_LIFE_NS:
        return f"it lives {(order.expires_ns - order.issued_ns) / 1e9:g} s; more than 0 and at most 60"
    if len(order.ranks) > MOST_RANKS or len(order.hosts) > MOST_RANKS or len(order.why) + len(order.issuer) > MOST_TEXT:
        return f"{len(order.ranks)} ranks, {len(order.hosts)} hosts, a reason of {len(order.why)} characters"
    least = ANY_TRAP if isinstance(what, Release) else 1
    if isinstance(what, Profile) and not 0 <= what.for_ms <= LONGEST_PROFILE_MS:
        return f"{what.for_ms} ms of profiling; at most {LONGEST_PROFILE_MS}"
    if isinstance(what, Offer | Apply | Confirm | Withdraw):
        return _wrong_with_a_ticket(what)
    if isinstance(what, Wake):
        are_some = 0 < len(what.processes) <= MOST_RANKS and all(r >= 0 and pid > 1 for r, pid in what.processes)
        return "" if are_some else f"{len(what.processes)} processes, {what.processes[:3]}"
    if isinstance(what, Answer):
        is_one = _DECISION.fullmatch(what.decision) and 0 < len(what.by) <= MOST_TEXT
        return "" if is_one else f"an answer of {what.by[:80]!r} to {what.decision[:80]!r}"
    if not isinstance(what, Locate | Profile) and not least <= what.trap < 1 << 63:
        return f"trap {what.trap}"
    if isinstance(what, Hold | Keep) and not 0 < what.lease_ms <= LONGEST_LEASE_MS:
        return f"a lease of {what.lease_ms} ms; more than 0 and at most {LONGEST_LEASE_MS}"
    if isinstance(what, Prepare):
        return _wrong_with_processes(what)
    if isinstance(what, Hold) and not (0 < what.hold_ms < 1 << 31 and 0 <= what.round < 1 << 62):
        return f"a hold of {what.hold_ms} ms at round {what.round}"
    return ""


def _wrong_with_processes(what: Prepare) -> str:
    if not (_RENDEZVOUS.fullmatch(what.rendezvous) and 0 < what.world_size <= MOST_RANKS):
        return f"{what.world_size} processes that meet at {what.rendezvous[:80]!r}"
    if what.ranks and (len(what.ranks) != what.world_size or sorted({*what.ranks}) != [*what.ranks] or what.hosts):
        return f"{what.world_size} processes beside the ranks {what.ranks[:8]}"
    if what.ranks and not 0 <= what.ranks[0] <= what.ranks[-1] < MOST_WORLD:
        return f"processes beside the ranks {what.ranks[0]} to {what.ranks[-1]}"
    is_even = len(set(what.hosts)) == len(what.hosts) and len(what.hosts) * what.per_host == what.world_size
    if (what.hosts or what.per_host) and not is_even:
        return f"{what.world_size} processes, {what.per_host} on each of {len(what.hosts)} hosts"
    return ""


def _wrong_with_a_ticket(what: Offer | Apply | Confirm | Withdraw) -> str:
    if not 1 <= what.ticket < 1 << 63:
        return f"ticket {what.ticket}"
    if isinstance(what, Apply) and not 0 <= what.step < 1 << 62:
        return f"step {what.step}"
    if not isinstance(what, Offer):
        return ""
    if _KIND.fullmatch(what.kind) is None:
        return f"a kind {what.kind[:80]!r}; a small letter, then letters, digits, '_', '.' and '-', at most 64 in all"
    n_bytes = len(msgspec.json.encode(what.payload))
    if n_bytes > MOST_PAYLOAD_BYTES:
        return f"a payload of {n_bytes} bytes; at most {MOST_PAYLOAD_BYTES}"
    try:
        msgspec.json.decode(what.payload)
    except UNREADABLE_JSON as error:
        return f"a payload that is no JSON: {error}"
    return ""
