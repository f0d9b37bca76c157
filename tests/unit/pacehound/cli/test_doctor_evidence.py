"""What `pacehound doctor` says about evidence, with and without what it needs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collector.host import kernel_log
from collector.host.evidence import pyspy
from collector.host.vitals import processors, tcp_info
from pacehound.cli import doctor_checks
from pacehound.errors import Unavailable


def raises(error: Exception) -> Any:
    def refuse(*_: object) -> None:
        raise error

    return refuse


def test_without_py_spy_the_kernel_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspy, "find", lambda: None)
    check = doctor_checks.check_stacks()
    assert (check.result, check.fix) == ("limited", "pip install 'pacehound[evidence]'")


def test_a_py_spy_that_may_not_read_is_told_with_what_to_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspy, "find", lambda: "/bin/py-spy")
    monkeypatch.setattr(pyspy, "main_thread", raises(Unavailable("permission denied")))
    check = doctor_checks.check_stacks()
    assert check.result == "limited"
    assert "permission denied" in check.detail
    assert "SYS_PTRACE" in check.fix


def test_connections_that_the_kernel_does_not_list_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_info, "established", raises(PermissionError("no")))
    assert doctor_checks.check_connections().result == "limited"
    monkeypatch.setattr(tcp_info, "established", lambda wanted: [])
    assert doctor_checks.check_connections().result == "ok"


def test_waits_for_processors_that_the_kernel_does_not_count_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "are_waits_counted", lambda: False)
    assert doctor_checks.check_processors().result == "limited"
    monkeypatch.setattr(processors, "are_waits_counted", lambda: True)
    assert doctor_checks.check_processors().result == "ok"


def test_gpus_are_missed_only_where_there_is_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = tmp_path / "version"
    assert doctor_checks.check_gpus(driver).result == "ok"
    driver.write_text("NVRM version")
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as if it were not installed
    assert "nvidia-ml-py is not installed" in doctor_checks.check_gpus(driver).detail
    nvml = SimpleNamespace(NVMLError=RuntimeError, nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: 8)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert doctor_checks.check_gpus(driver).detail == "NVML tells of 8"
    nvml.nvmlInit = raises(RuntimeError("driver mismatch"))
    assert "driver mismatch" in doctor_checks.check_gpus(driver).detail


def test_a_kernel_log_that_may_not_be_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel_log.may_be_read(Path(os.devnull)) is True
    monkeypatch.setattr(kernel_log, "may_be_read", lambda: False)
    assert doctor_checks.check_kernel_log().result == "limited"
