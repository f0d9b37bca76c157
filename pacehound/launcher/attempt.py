"""Which attempt of its job a run is: whoever receives its events is asked. Never an error, never for long.

Kafka cannot be asked: it keeps what it is given and knows nothing of jobs, and the job's hosts must get one answer
although none of them has heard of another. What they do share is what the scheduler says, so there its count of
restarts is taken.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pacehound.errors import PacehoundError, Unavailable
from pacehound.launcher.destination import Destination
from pacehound.runtime.head.attempts import Answer, attempt_by_time, next_attempt
from pacehound.runtime.head.client import HeadClient

ATTEMPT_PATH = "/v1/attempt"
RESTARTS_WITHIN = 1_000
"""Where the scheduler counts, and beside a run that is live, there is room for so many restarts of torchrun's, which
are added to an attempt."""

WITHIN_S = 2.0
"""The command waits no longer than this for an answer."""

_RESTARTS = "SLURM_RESTART_COUNT"
_PAUSE_S = 0.2
_HIGHEST = 2**30  # a ring's header has 32 bits for it, and restarts are added
_TRY_AGAIN = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)


def ask_endpoint(destination: Destination, job: str, host: str, within_s: float = WITHIN_S) -> Answer | None:
    """The answer of a head somewhere, `None` from nobody in time; a receiver that does not know the question means 0.

    Raises
    ------
    Unavailable
        Somebody answers there who is not trusted.

    """
    answer: list[Answer] = []
    refusals: list[Unavailable] = []
    deadline_s = time.monotonic() + within_s

    def ask() -> None:
        while (left_s := deadline_s - time.monotonic()) > 0:
            try:
                found = _ask_once(destination, job, host, left_s)
            except Unavailable as error:
                refusals.append(error)
                return
            except Exception:  # whatever a network or a stranger's answer may raise: it must not reach the user
                found = None
            if found is not None:
                answer.append(found)
                return
            time.sleep(min(_PAUSE_S, left_s))

    # On a thread: looking a name up has no timeout of its own.
    asking = threading.Thread(target=ask, name="attempt", daemon=True)
    asking.start()
    asking.join(within_s)
    if refusals:
        raise refusals[0]
    return answer[0] if answer else None


def ask_store(client: HeadClient | None, store: Path, job: str, host: str) -> Answer:
    """The answer of the head that has the store open; where there is none yet, what stands beside the store."""
    if client is not None:
        try:
            told = client.attempt(job, host, WITHIN_S)
            return told._replace(attempt=_fitting(told.attempt))
        except (PacehoundError, ValueError, KeyError, TypeError):
            pass  # it is ending, too busy, or of another version: what it noted will do
    return Answer(_fitting(next_attempt(store, job)))


def scheduled_attempt(environ: Mapping[str, str]) -> int:
    """The attempt of a run on whose events nobody can be asked, from the scheduler's count of restarts.

    torchrun's own restarts (TORCHELASTIC_RESTART_COUNT) are added in the training processes, which alone know them:
    without room between two counts, the second run's first attempt would be the first run's second one.

    Examples
    --------
    >>> scheduled_attempt({"SLURM_RESTART_COUNT": "2"}), scheduled_attempt({})
    (2000, 0)

    """
    return _fitting(int(environ[_RESTARTS]) * RESTARTS_WITHIN) if counts_restarts(environ) else 0


def unknown_attempt(now_s: float) -> int:
    """The attempt of a run of which nobody has said which it is: a number of its own, above all that were counted.

    It is the time, in seconds: on two hosts two runs of one name do not begin in the same second (on one: `apart`), and
    what a head answers later is above it. Hosts of one run of which some were answered and some were not are shown as
    two attempts.

    >>> unknown_attempt(1_800_000_000.0), unknown_attempt(1_800_000_001.0)
    (222163200, 222163201)
    """
    return _fitting(attempt_by_time(now_s))


def apart(wanted: int, beside: Sequence[int]) -> int:
    """The attempt of a run while others of its job are live on its host: `wanted`, unless it would be mixed with them.

    No receiver can tell: a host that asks twice may be one whose first answer was lost, and Kafka is not asked at all.
    On each host that both runs have this gives the same number, for the first one has the same on all of its hosts.

    >>> apart(0, []), apart(0, [0]), apart(7, [0]), apart(1000, [0]), apart(0, [0, 1000])
    (0, 1000, 1000, 1000, 2000)
    """
    is_free = all(one + RESTARTS_WITHIN <= wanted for one in beside)
    return wanted if is_free else max(beside) + RESTARTS_WITHIN


def counts_restarts(environ: Mapping[str, str]) -> bool:
    """Whether the scheduler says how often it has restarted the job."""
    return environ.get(_RESTARTS, "").isdecimal()


def _ask_once(destination: Destination, job: str, host: str, timeout_s: float) -> Answer | None:
    # Here and not above: the standard library's HTTP takes 20 ms to load, and most runs do not need it.
    import urllib.error
    import urllib.request

    from pacehound.bus.tls import why_not_trusted

    class StayHere(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *args: Any) -> None:
            """A token is not carried to another place."""

    request = urllib.request.Request(
        attempt_url(destination.url),
        data=json.dumps({"job": job, "host": host}).encode(),
        headers={**destination.headers, "Content-Type": "application/json", "User-Agent": "pacehound"},
        method="POST",
    )
    handlers: list[urllib.request.BaseHandler] = [StayHere()]
    if request.type == "https":
        handlers.append(urllib.request.HTTPSHandler(context=destination.trust.context()))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout_s) as response:
            return parse_answer(response.read(4096))
    except urllib.error.HTTPError as error:
        error.close()
        return None if error.code >= 500 or error.code in _TRY_AGAIN else Answer(0)
    except (urllib.error.URLError, TimeoutError) as error:
        if why := why_not_trusted(error):
            raise Unavailable(f"{destination.url} is not trusted: {why}") from error
        return None


def attempt_url(endpoint: str) -> str:
    """Where an endpoint's head is asked.

    >>> attempt_url("https://gate/otlp/?tenant=a")
    'https://gate/otlp/v1/attempt?tenant=a'
    """
    parts = urlsplit(endpoint)
    return parts._replace(path=parts.path.rstrip("/") + ATTEMPT_PATH).geturl()


def parse_answer(body: bytes) -> Answer:
    """The attempt in `{"attempt": n, "live": m}`; 0 for anything else, which is what a stranger answers.

    >>> parse_answer(b'{"attempt": 3, "live": 2}'), parse_answer(b"<html>")
    (Answer(attempt=3, live=2), Answer(attempt=0, live=None))
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return Answer(0)
    if not isinstance(answer, dict):
        return Answer(0)
    live = answer.get("live")
    return Answer(_fitting(answer.get("attempt")), None if live is None else _fitting(live))


def _fitting(attempt: object) -> int:
    is_number = isinstance(attempt, int) and not isinstance(attempt, bool)
    return attempt if is_number and isinstance(attempt, int) and 0 <= attempt < _HIGHEST else 0
