"""Asks the owner of a store: HTTP over its unix socket, with the standard library alone."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from pacehound.errors import InvalidInput, Unavailable
from pacehound.model.events import Command, CommandResult, Decision, Incident
from pacehound.model.evidence import read_json
from pacehound.runtime.head.attempts import Answer
from pacehound.runtime.head.owner import Owner, announced


class HeadClient:
    """One head, asked over its socket; every question opens a connection of its own.

    Raises
    ------
    Unavailable
        From every method: nobody answers there, or not in time.
    InvalidInput
        From every method: the question cannot be answered as it was asked.

    """

    def __init__(self, path: Path, timeout_s: float = 10.0) -> None:
        self._path = path
        self._timeout_s = timeout_s

    def status(self) -> dict[str, Any]:
        """What the head is doing."""
        answer: dict[str, Any] = json.loads(self._ask("GET", "/status"))
        return answer

    def health(self) -> Health:
        """What is not as it should be there."""
        return msgspec.convert(self.status().get("health", {}), Health)

    def incidents(self, job: str | None = None) -> tuple[list[Incident], list[Decision]]:
        """The latest version of each incident, and the decisions about them."""
        found = read_json(self._ask("GET", "/incidents", {} if job is None else {"job": job}), IncidentsAnswer)
        return found.incidents, found.decisions

    def sql(self, statement: str) -> bytes:
        """The rows of a reading statement, as an Arrow stream."""
        return self._ask("POST", "/sql", body=json.dumps({"sql": statement}).encode())

    def ask(self, name: str, parameters: Mapping[str, Any]) -> bytes:
        """The rows of one of the store's named queries, as an Arrow stream."""
        return self._ask("POST", "/ask", body=msgspec.json.encode(Asked(name=name, parameters=dict(parameters))))

    def rows(self, statement: str) -> list[dict[str, Any]]:
        """The rows of a reading statement that has few."""
        import pyarrow as pa

        with pa.ipc.open_stream(self.sql(statement)) as reader:
            rows: list[dict[str, Any]] = reader.read_all().to_pylist()
        return rows

    def settle(self, timeout_s: float) -> bool:
        """Wait until everything that has arrived is processed and stored; False where that takes longer."""
        answer = json.loads(self._ask("POST", "/settle", {"timeout_s": str(timeout_s)}, wait_s=timeout_s + 2.0))
        return bool(answer["settled"])

    def attempt(self, job: str, host: str, timeout_s: float) -> Answer:
        """Which attempt of `job` a run is that begins on `host` now."""
        question = json.dumps({"job": job, "host": host}).encode()
        answer = json.loads(self._ask("POST", "/v1/attempt", body=question, wait_s=timeout_s))
        return Answer(int(answer["attempt"]), answer.get("live"))

    def command(self, command: Command) -> None:
        """Hand a signed order over, for the agents of its job."""
        from pacehound.model import codec  # NumPy and Arrow, for which who asks for incidents does not wait

        self._ask("POST", "/command", body=codec.encode(command))

    def results(self, job: str, after: int) -> tuple[list[CommandResult], int]:
        """What agents have answered since the last time, and the number to ask for next."""
        found = msgspec.json.decode(self._ask("GET", "/results", {"job": job, "after": str(after)}), type=ResultsAnswer)
        return found.results, found.after

    def shut_down(self) -> None:
        """Ask it to finish what has arrived and to end."""
        self._ask("POST", "/shutdown")

    def lease(self, job: str) -> socket.socket:
        """Hold the head open until the returned socket is closed (or this process dies)."""
        connection = self._connect()
        try:
            request = f"GET /lease?{urlencode({'job': job})} HTTP/1.1\r\nHost: pacehound\r\n\r\n"
            connection.sendall(request.encode())
            start = connection.recv(64)
        except OSError as error:
            connection.close()
            raise Unavailable(f"the head at {self._path} gives no lease: {error}") from error
        if not start.startswith(b"HTTP/1.1 200"):
            connection.close()
            raise Unavailable(f"the head at {self._path} gives no lease: {start[:40]!r}")
        return connection

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(self._timeout_s)
        try:
            connection.connect(str(self._path))
        except OSError as error:
            connection.close()
            raise Unavailable(f"nobody answers at {self._path}: {error}") from error
        return connection

    def _ask(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: bytes | None = None,
        wait_s: float | None = None,
    ) -> bytes:
        connection = http.client.HTTPConnection("pacehound", timeout=self._timeout_s)
        connection.sock = self._connect()
        if wait_s is not None:
            connection.sock.settimeout(wait_s)
        try:
            connection.request(method, f"{path}?{urlencode(query)}" if query else path, body)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the head at {self._path} did not answer {path}: {error!r}") from error
        finally:
            connection.close()
        if response.status == 400:
            raise InvalidInput(answer.decode(errors="replace"))
        if response.status != 200:
            raise Unavailable(
                f"the head answered {path} with {response.status}: {answer[:300].decode('utf8', 'replace')}"
            )
        return answer


class Health(msgspec.Struct, kw_only=True, frozen=True):
    """What a head says of itself; part of what `/status` answers.

    Attributes
    ----------
    problems
        What is not as it should be, in sentences.
    not_stored_messages
        What has arrived or was concluded, and is not stored so far.
    failed_writes
        Tries at storing that failed since the head has begun; each was repeated.

    """

    problems: tuple[str, ...] = ()
    not_stored_messages: int = 0
    failed_writes: int = 0


class Asked(msgspec.Struct, kw_only=True, frozen=True):
    """What is sent to `/ask`: a named query and the values of its parameters."""

    name: str
    parameters: dict[str, Any] = {}


class ResultsAnswer(msgspec.Struct, kw_only=True):
    """What `/results` answers."""

    results: list[CommandResult]
    after: int


class IncidentsAnswer(msgspec.Struct, kw_only=True):
    """What `/incidents` answers."""

    incidents: list[Incident]
    decisions: list[Decision]


def live_owner(store: Path) -> tuple[Owner, HeadClient] | None:
    """The process that owns `store` now, if it answers."""
    owner = announced(store)
    if owner is None:
        return None
    client = HeadClient(Path(owner.socket), timeout_s=5.0)
    try:
        if client.status()["pid"] != owner.pid:
            return None
    except Unavailable:
        return None
    return owner, HeadClient(Path(owner.socket), timeout_s=60.0)
