"""Two hosts on one machine: network namespaces joined by a veth pair, made and removed by the test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass


@dataclass(frozen=True)
class Host:
    """One namespace."""

    name: str
    namespace: str
    address: str
    interface: str

    @property
    def prefix(self) -> list[str]:
        """What a command is run with to be on this host."""
        return ["ip", "netns", "exec", self.namespace]

    def kill_all(self) -> None:
        """Every process on this host, at once: nobody there says a last word."""
        found = subprocess.run(["ip", "netns", "pids", self.namespace], check=True, capture_output=True, text=True)
        for pid in map(int, found.stdout.split()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def why_not() -> str:
    """Why namespaces cannot be had here; empty when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need iproute2"
    return ""


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Two hosts that reach each other and nothing else."""
    tag = f"ph{os.getpid() % 100_000}"
    hosts = tuple(
        Host(name=name, namespace=f"{tag}{name}", address=f"10.77.0.{number}", interface=f"{tag}{number}")
        for number, name in ((1, "left"), (2, "right"))
    )
    left, right = hosts
    try:
        for host in hosts:
            _ip("netns", "add", host.namespace)
        peer = ("peer", "name", right.interface, "netns", right.namespace)
        _ip("link", "add", left.interface, "netns", left.namespace, "type", "veth", *peer)
        for host in hosts:
            _ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", host.interface)
            for interface in ("lo", host.interface):
                _ip("-n", host.namespace, "link", "set", interface, "up")
        yield left, right
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "delete", host.namespace], capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def hosts_on_a_bridge(n_hosts: int) -> Iterator[list[Host]]:
    """Several hosts that reach each other and nothing else, over a switch in a namespace of its own."""
    tag = f"pb{os.getpid() % 100_000}"
    switch = f"{tag}s"
    hosts = [
        Host(
            name=f"h{number}", namespace=f"{tag}h{number}", address=f"10.78.0.{number + 1}", interface=f"{tag}v{number}"
        )
        for number in range(n_hosts)
    ]
    try:
        for namespace in (switch, *(host.namespace for host in hosts)):
            _ip("netns", "add", namespace)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for number, host in enumerate(hosts):
            plug = f"{tag}p{number}"
            _ip(
                "link",
                "add",
                host.interface,
                "netns",
                host.namespace,
                "type",
                "veth",
                "peer",
                "name",
                plug,
                "netns",
                switch,
            )
            _ip("-n", switch, "link", "set", plug, "master", "bridge", "up")
            _ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", host.interface)
            for interface in ("lo", host.interface):
                _ip("-n", host.namespace, "link", "set", interface, "up")
        yield hosts
    finally:
        for namespace in (switch, *(host.namespace for host in hosts)):
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)
