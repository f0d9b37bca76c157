"""Interfaces, GPUs, memory kills and the kernel's log, from recorded trees and a stand-in for NVML."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collector.host.kernel_log import MAX_LINES, SLACK_US, KernelLog
from collector.host.vitals.gpus import Gpus
from collector.host.vitals.nics import Nics
from collector.host.vitals.oom import OomKills
from pacehound.model.events import NicReading
from tests.fakes.proc_tree import ProcTree, process


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


# Interfaces.


def test_interfaces_with_hardware_tell_their_state_and_what_went_wrong(tmp_path: Path) -> None:
    net = tmp_path / "class" / "net"
    write(net / "eth0", operstate="up", device__x="", statistics__rx_errors="3", statistics__tx_dropped="7")
    write(net / "eth0", statistics__rx_bytes="99", statistics__rx_crc_errors="1", carrier_down_count="2")
    write(net / "veth7", operstate="up", statistics__rx_errors="5")
    write(net / "lo", operstate="unknown")
    nics = Nics(tmp_path)
    assert nics.look() == (NicReading(name="eth0", state="up", errors={}),)  # what was before is no evidence
    write(net / "eth0", operstate="down", statistics__rx_errors="5", carrier_down_count="3", statistics__rx_bytes="999")
    grown = {"rx_errors": 2, "carrier_down_count": 1}
    assert nics.look() == (NicReading(name="eth0", state="down", errors=grown),)
    write(net / "eth0", operstate="up", statistics__rx_errors="1")  # its driver began anew
    assert nics.look() == (NicReading(name="eth0", state="up", errors={"rx_errors": 1, "carrier_down_count": 1}),)


def test_without_hardware_every_interface_but_loopback_is_told(tmp_path: Path) -> None:
    for name in ("veth7", "lo"):
        write(tmp_path / "class" / "net" / name, operstate="up")
    assert [nic.name for nic in Nics(tmp_path).look()] == ["veth7"]


def test_a_port_of_infiniband_is_named_by_device_and_number(tmp_path: Path) -> None:
    port = tmp_path / "class" / "infiniband" / "mlx5_0" / "ports" / "1"
    write(port, state="4: ACTIVE", counters__symbol_error="0", counters__port_xmit_data="5")
    write(port, counters__link_downed="0", hw_counters__out_of_sequence="0", hw_counters__lifespan="10")
    nics = Nics(tmp_path)
    nics.look()
    write(port, counters__symbol_error="7", counters__port_xmit_data="50")
    write(port, counters__link_downed="1", hw_counters__out_of_sequence="2")
    assert nics.look() == (
        NicReading(name="mlx5_0/1", state="active", errors={"link_downed": 1, "symbol_error": 7, "out_of_sequence": 2}),
    )


def test_a_host_without_any_of_it_tells_nothing(tmp_path: Path) -> None:
    assert Nics(tmp_path / "nowhere").look() == ()


# GPUs.


class NvmlError(Exception):
    pass


class FakeNvml:
    """Answers as pynvml does; a GPU in `lost` answers nothing."""

    NVMLError = NvmlError
    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0, 1, 0

    def __init__(self, gpus: int, has_driver: bool = True) -> None:
        self.gpus = gpus
        self.has_driver = has_driver
        self.lost: set[int] = set()
        self.asked = 0

    def nvmlInit(self) -> None:  # noqa: N802
        self.asked += 1
        if not self.has_driver:
            raise NvmlError("no driver")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.gpus

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index in self.lost:
            raise NvmlError("lost")
        return index

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlDeviceGetUUID": lambda gpu: f"GPU-{gpu}",
            "nvmlDeviceGetName": lambda gpu: b"NVIDIA H20",
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: 0x44,
            "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [
                SimpleNamespace(pid=100 + gpu),
                SimpleNamespace(pid=9),
            ],
            "nvmlDeviceGetPciInfo": lambda gpu: SimpleNamespace(busId=f"00000000:C{gpu}:00.0"),
            "nvmlDeviceGetClockInfo": lambda gpu, kind: 1200,
            "nvmlDeviceGetMaxClockInfo": lambda gpu, kind: 1980,
            "nvmlDeviceGetTemperature": lambda gpu, sensor: 84,
            "nvmlDeviceGetPowerUsage": lambda gpu: 699_500,
        }
        if name in answers:
            return answers[name]
        if name == "nvmlDeviceGetTotalEccErrors":
            return self._refuses
        raise AttributeError(name)

    def _refuses(self, *about: object) -> None:
        raise NvmlError("not supported")


def test_a_gpu_is_told_with_its_ranks_and_what_it_does_not_answer_is_zero() -> None:
    one, two = Gpus(FakeNvml(2)).look([process(0), process(1)], {"0000:c1:00": 79})
    assert (one.uuid, one.ranks, one.xid) == ("GPU-0", (0,), 0)
    assert one.throttle_reasons == ("sw_power_cap", "hw_thermal_slowdown")
    assert (one.sm_clock_mhz, one.max_sm_clock_mhz, one.temperature_c, one.power_w) == (1200, 1980, 84, 699.5)
    assert one.ecc_uncorrected == 0
    assert (two.uuid, two.ranks, two.xid) == ("GPU-1", (1,), 79)


def test_a_gpu_that_is_lost_does_not_take_the_others_with_it() -> None:
    nvml = FakeNvml(2)
    nvml.lost = {0}
    assert [gpu.index for gpu in Gpus(nvml).look([], {})] == [1]


def test_without_a_driver_nobody_asks_again() -> None:
    nvml = FakeNvml(2, has_driver=False)
    gpus = Gpus(nvml)
    assert gpus.look([], {}) == gpus.look([], {}) == ()
    assert nvml.asked == 1


# Killed for memory.


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("0::/job/ranks", "fs/cgroup/job/ranks/memory.events"),
        ("4:cpu,memory:/job/ranks", "fs/cgroup/memory/job/ranks/memory.oom_control"),
    ],
)
def test_kills_count_from_the_first_look_on_and_outlive_the_killed(tmp_path: Path, line: str, file: str) -> None:
    tree, sys = ProcTree(tmp_path / "proc"), tmp_path / "sys"
    for rank in (0, 1):
        tree.put(100 + rank)
        tree.say(100 + rank, cgroup=f"9:name=systemd:/\n{line}\n")
    write(sys, **{file.replace("/", "__"): "oom 4\noom_kill 3\noom_group_kill 0"})
    kills = OomKills(tree.root, sys)
    assert kills.look([process(0), process(1)]) == 0
    write(sys, **{file.replace("/", "__"): "oom 5\noom_kill 5"})
    tree.remove(100)
    assert kills.look([process(1)]) == 2
    assert kills.look([]) == 2


def test_without_a_control_group_the_whole_host_is_counted(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.put(100)
    kills = OomKills(tree.root, tmp_path / "sys")
    assert kills.look([process(0)]) == 0
    (tmp_path / "vmstat").write_text("pgfault 1\noom_kill 7\n")
    assert kills.look([process(0)]) == 0  # asked for once per process
    counted = OomKills(tree.root, tmp_path / "sys")
    assert counted.look([process(0)]) == 0
    (tmp_path / "vmstat").write_text("pgfault 1\noom_kill 8\n")
    assert counted.look([process(0)]) == 1


# The kernel's log.


class Kmsg:
    """A device that gives one record per read: a pipe that keeps its packets apart."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe2(os.O_DIRECT | os.O_NONBLOCK | os.O_CLOEXEC)
        self.path = Path(f"/proc/self/fd/{self._out}")

    def write(self, seconds: float, text: str, facility: int = 0) -> None:
        os.write(self._in, f"{facility << 3 | 4},1,{round(seconds * 1e6)},-;{text}\n SUBSYSTEM=pci\n".encode())

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)


@pytest.fixture
def kmsg() -> Any:
    device = Kmsg()
    yield device
    device.close()


XID = "NVRM: Xid (PCI:0000:c3:00): {}, pid=100, name=python, GPU has fallen off the bus."


def test_telling_lines_since_the_job_began_are_kept_and_read_on(kmsg: Kmsg) -> None:
    log = KernelLog(1_000_000_000_000, kmsg.path)
    kmsg.write(1000 - SLACK_US / 1e6 - 1, XID.format(48))  # of an earlier job
    kmsg.write(1003, "usb 1-1: new device")
    kmsg.write(1004, XID.format(79), facility=1)  # anybody may write that
    kmsg.write(1005, "Out of memory: Killed process 100 (python) total-vm:9kB")
    kmsg.write(1006, "mlx5_core 0000:3b:00.0 eth2: Link down")
    assert log.lines() == (
        "+5 s: Out of memory: Killed process 100 (python) total-vm:9kB",
        "+6 s: mlx5_core 0000:3b:00.0 eth2: Link down",
    )
    assert log.xids() == {}
    kmsg.write(1007, XID.format(63))
    kmsg.write(1008, XID.format(79))
    assert log.xids() == {"0000:c3:00": 79}
    assert len(log.lines()) == 4


def test_the_lines_kept_are_bounded(kmsg: Kmsg) -> None:
    log = KernelLog(0, kmsg.path)
    for second in range(MAX_LINES + 5):
        kmsg.write(second, f"nfs: server n{second} not responding")
        log.lines()
    lines = log.lines()
    assert len(lines) == MAX_LINES
    assert lines[-1].endswith(f"n{MAX_LINES + 4} not responding")


def test_a_log_that_may_not_be_read_says_nothing_and_raises_nothing(tmp_path: Path) -> None:
    assert isinstance(KernelLog(1 << 62, tmp_path / "none").lines(), tuple)
