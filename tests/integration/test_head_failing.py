"""What a head answers while its disk is full, or no descriptor is left: never that it has what it has not."""

from __future__ import annotations

import itertools
import json
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from head_parts import sample
from product import Product
from small_disk import fill, needs_root, small_disk

from bench.rig import realjob
from pacehound.model import codec
from pacehound.runtime.head.client import live_owner

pytestmark = pytest.mark.integration

PROTOBUF = {"Content-Type": "application/x-protobuf"}
WITHIN_S = 30.0


class FailingHead:
    """A head whose surroundings fail, and who has been told what by it."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self._log = product.home / "head.log"
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        self.process = product.start(
            "up", "--listen", "127.0.0.1:0", stderr=self._log.open("wb"), preexec_fn=self._with_few_descriptors
        )
        self.until(lambda: live_owner(product.store) is not None)
        owner = json.loads((product.store / "head.json").read_text())
        self.url, self._headers = owner["url"], {**PROTOBUF, "Authorization": f"Bearer {owner['token']}"}
        self.taken: set[str] = set()

    def _with_few_descriptors(self) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, self._limit))

    def send(self, job: str) -> int:
        """The status of the answer; 0 where there is none."""
        body = codec.encode(sample(job=job, time_ns=time.time_ns(), stopped=(1,)))
        try:
            status = httpx.post(f"{self.url}/v1/logs", content=body, headers=self._headers, timeout=2.0).status_code
        except httpx.TransportError:
            return 0
        if status == 200:
            self.taken.add(job)
        return status

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for it."""
        realjob.until("it", holds, WITHIN_S, 0.05, lambda: self.log()[-2000:], self.process)

    def stored(self) -> set[str]:
        """The jobs that the store knows."""
        done = self._product.finish("sql", "--json", "SELECT DISTINCT job FROM host_samples")
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        return {job for (job,) in answer["rows"]}

    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture
def head(tmp_path: Path) -> Iterator[FailingHead]:
    product = Product(Path(__file__).parents[2], tmp_path)  # with the real store
    with small_disk(product.store, 64):
        head = FailingHead(product)
        try:
            yield head
        finally:
            head.process.terminate()
            head.process.wait(20)


@needs_root
def test_a_full_disk_is_answered_with_503_until_there_is_room_and_no_confirmed_row_is_lost(head: FailingHead) -> None:
    assert head.send("before") == 200
    somebody_elses = fill(head._product.store)
    numbers = itertools.count()
    # What fits into the last page of the journal is kept there, and answered for.
    head.until(lambda: head.send(f"fits-{next(numbers)}") == 503)
    began_s = time.monotonic()
    assert [head.send(f"full-{n}") for n in range(5)] == [503] * 5
    assert time.monotonic() - began_s < 5.0, "who must keep what it has is told at once"
    somebody_elses.unlink()
    head.until(lambda: head.send("after") == 200)
    assert head.taken <= head.stored()


@needs_root
def test_no_descriptor_left_costs_no_confirmed_row_and_a_few_lines_of_log(head: FailingHead) -> None:
    assert head.send("before") == 200
    pid = head.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    assert limits[0] == limits[1], "a head raises its own limit"
    highest = max(int(one) for one in os.listdir(f"/proc/{pid}/fd"))
    address = ("127.0.0.1", int(head.url.rpartition(":")[2]))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 2, limits[1]))
    crowd = [socket.create_connection(address) for _ in range(100)]
    assert 200 not in [head.send(f"none-{n}") for n in range(2)]
    for one in crowd:
        one.close()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    head.until(lambda: head.send("after") == 200)
    assert head.taken <= head.stored()
    assert len(head.log().splitlines()) < 30
