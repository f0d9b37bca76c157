"""What works on this host, what does not, and how to fix it."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import select
import shutil
import site
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pacehound.errors import InvalidSetting, Unavailable
from pacehound.runtime.head.address import OTLP_PORT
from pacehound.settings import AlertSettings, Settings, TraceSettings

Result = Literal["ok", "limited", "missing"]
_MARKS = {"ok": ("ok", "green"), "limited": ("limited", "yellow"), "missing": ("missing", "red")}
_RINGS_NEED_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Check:
    """What was found.

    Attributes
    ----------
    result
        `limited`: it works, with less or slower. `missing`: what needs it does not work.
    fix
        What to do; empty where nothing is to be done.

    """

    result: Result
    detail: str
    fix: str = ""


def ok(detail: str) -> Check:
    """It works."""
    return Check("ok", detail)


def limited(detail: str, fix: str = "") -> Check:
    """It works, with less or slower."""
    return Check("limited", detail, fix)


def missing(detail: str, fix: str = "") -> Check:
    """What needs it does not work."""
    return Check("missing", detail, fix)


def examine(store: Path, settings: Settings, looking_at: Callable[[str], None] = lambda name: None) -> dict[str, Check]:
    """Look at everything; each look takes seconds at most, and none can take the others with it.

    `looking_at` is told what is looked at next.
    """
    head = ("aiohttp", "chdb", "clickhouse_connect")
    looks: dict[str, Callable[[], Check]] = {
        "python": lambda: ok(f"{sys.version.split()[0]} at {sys.executable}"),
        "torch hooks": check_torch,
        "PYTHONPATH": check_pth,
        "fast path": check_fast_path,
        "NCCL shim": check_shim,
        "NCCL profiler": check_profiler,
        "hold": check_hold,
        "shared memory": check_shared_memory,
        "process watching": check_pidfd,
        "stacks": check_stacks,
        "connections": check_connections,
        "GPUs": check_gpus,
        "processors": check_processors,
        "kernel log": check_kernel_log,
        "agent": lambda: check_modules(("httpx",), "collector", "no events leave this host"),
        "head": lambda: check_modules(head, "embedded", "only `run --endpoint` works"),
        "store": lambda: check_store(store),
        "port": check_port,
        "alerts": lambda: check_alerts(settings.alerts),
        "traces": lambda: check_traces(settings.traces),
    }
    checks = {}
    for name, look in looks.items():
        looking_at(name)
        try:
            checks[name] = look()
        except Exception as error:
            checks[name] = missing(f"{type(error).__name__}: {error}")
    return checks


def check_torch() -> Check:
    """The hooks of torch's process groups, which see the calls of a training script."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return limited(
            "torch is not installed beside Pacehound",
            "install Pacehound into the environment of the training script, or training runs unseen",
        )
    import torch
    import torch.distributed as dist

    dispatched_calls = importlib.import_module("pacehound.instrument.dispatched_calls")
    group = getattr(dist, "ProcessGroup", None)
    if hasattr(group, "register_pre_hook") and hasattr(group, "register_post_hook"):
        return ok(f"torch {version} has them")
    if not dist.is_available():
        return missing(f"torch {version} is built without distributed")
    if dispatched_calls.DispatchedCalls.are_possible(torch, group):
        return ok(f"torch {version} has none; its calls are seen in its dispatcher")
    return missing(
        f"the calls of torch {version} cannot be seen",
        "use torch 2.4 or later, or watch NCCL itself (`run --nccl shim`)",
    )


def check_pth() -> Check:
    """Whether ranks are seen whose script sets PYTHONPATH itself, or runs Python without it."""
    launch = importlib.import_module("pacehound.instrument.launch")
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    if any((Path(folder) / launch.PTH).is_file() for folder in folders):
        return ok("a script may set it")
    return limited(
        "the ranks of a script that sets it, or runs `python -I`, are not seen",
        "install Pacehound itself beside torch (`pip install .`, without -e)",
    )


def check_fast_path() -> Check:
    """The C++ extension that makes an instrumented call cheap."""
    build = importlib.import_module("pacehound.instrument.build")
    found = build.find()
    if found is not None:
        return ok(f"built: {found}")
    reason = build.reason_unavailable()
    if reason:
        return limited(
            f"{reason}; Python hooks are used (some microseconds per call)",
            "install a C++ compiler and ninja for torch's extensions",
        )
    return limited("not built yet; Python hooks are used (some microseconds per call)", "pacehound doctor --build")


def check_shim() -> Check:
    """The library before NCCL, for jobs whose calls the hooks do not see."""
    shim = importlib.import_module("pacehound.instrument.shim")
    reason = shim.reason_unavailable()
    if reason:
        return limited(
            f"{reason}; `run --nccl shim` does not work", "install gcc or clang" if "compiler" in reason else ""
        )
    found = shim.find()
    if found is None:
        return ok("not built yet; `run --nccl shim` or `doctor --build` builds it")
    return ok(f"built: {found}; used by `run --nccl shim`")


def check_hold() -> Check:
    """What stops the ranks of a job for a moment, where torch's hooks see their calls."""
    hold = importlib.import_module("pacehound.instrument.hold")
    found = hold.find()
    if found is not None:
        return ok(f"built: {found}")
    reason = importlib.import_module("pacehound.instrument.shim").reason_not_made()
    if reason:
        return limited(f"{reason}; jobs cannot be paused or validated", "install gcc or clang")
    return limited("not built yet; jobs cannot be paused or validated", "pacehound doctor --build")


def check_profiler() -> Check:
    """The plugin in NCCL, which sees when kernels begin and end; and whether the NCCL installed here is one for it."""
    profiler = importlib.import_module("pacehound.instrument.profiler")
    reason = profiler.reason_unavailable()
    if reason:
        fix = "install gcc or clang" if "compiler" in reason else ""
        return limited(f"{reason}; `run --nccl profiler` does not work", fix)
    theirs = os.environ.get(profiler.VARIABLE, "")
    if profiler.is_somebody_elses(theirs):
        return limited(
            f"{profiler.VARIABLE}={theirs} is set, and NCCL loads one plugin only",
            f"unset {profiler.VARIABLE} for `run --nccl profiler`",
        )
    found = profiler.find()
    if found is None:
        return ok("not built yet; `run --nccl profiler` or `doctor --build` builds it")
    version = profiler.installed_nccl()
    if version is None:
        return ok(f"built: {found}; which NCCL a job uses is not known here: the plugin looks, and says if it refuses")
    said = f"NCCL {version // 10000}.{version // 100 % 100}.{version % 100}"
    refused = profiler.refusal(found, version)
    if refused:
        return limited(f"{said}, which is installed here, is refused: {refused}")
    without = profiler.without_ends(found, version)
    if without:
        return limited(f"{said}, which is installed here: launches are seen, and when calls end is not: {without}")
    return ok(f"built: {found}; works with {said}, which is installed here; used by `run --nccl profiler`")


def build_shim(console: Console) -> None:
    """Build the NCCL shim, the profiler plugin and the hold where that is possible; nothing where it is not."""
    shim = importlib.import_module("pacehound.instrument.shim")
    if shim.reason_not_made():
        return
    for name, what in (("shim", "NCCL shim"), ("profiler", "NCCL profiler plugin"), ("hold", "hold")):
        module = importlib.import_module(f"pacehound.instrument.{name}")
        with console.status(f"building the {what} (C, a second)"):
            try:
                found = module.build()
            except (RuntimeError, OSError) as error:
                raise Unavailable(str(error)) from error
        console.print(f"built: {found}")


def check_shared_memory(folder: Path = Path("/dev/shm")) -> Check:
    """Where the ranks' rings lie."""
    if not os.access(folder, os.W_OK):
        return limited(
            f"{folder} cannot be written; rings go to {tempfile.gettempdir()}, which may be a disk",
            f"mount a tmpfs at {folder} (containers: --shm-size=1g)",
        )
    free = shutil.disk_usage(folder).free
    if free < _RINGS_NEED_BYTES:
        return limited(f"{folder} has {free >> 20} MiB left", "containers: start with --shm-size=1g")
    return ok(f"{folder}, {free >> 20} MiB left")


def check_pidfd() -> Check:
    """Hearing at once that a rank has left."""
    try:
        descriptor = os.pidfd_open(os.getpid())
    except (AttributeError, OSError) as error:
        return limited(
            f"no pidfd ({error}); ranks that leave are noticed by polling",
            "Linux 5.3 or newer; in a container, allow pidfd_open",
        )
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.poll(0)
    finally:
        os.close(descriptor)
    return ok("pidfd works")


def check_stacks() -> Check:
    """Reading what a rank that does not go on is doing."""
    reader = importlib.import_module("collector.host.evidence.pyspy")
    program = reader.find()
    if program is None:
        return limited(
            "py-spy is not installed: what the kernel says of a rank has to do", "pip install 'pacehound[evidence]'"
        )
    try:
        # It is a child of ours and reads its parent: no more is allowed to it than to an agent that reads a rank.
        reader.main_thread(program, os.getpid())
    except Unavailable as error:
        scope = _ptrace_scope()
        return limited(
            f"{error}" + (f"; kernel.yama.ptrace_scope is {scope}" if scope else ""),
            "sysctl kernel.yama.ptrace_scope=0; in a container, --cap-add SYS_PTRACE",
        )
    return ok(f"{program} reads Python stacks")


def _ptrace_scope(path: Path = Path("/proc/sys/kernel/yama/ptrace_scope")) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def check_connections() -> Check:
    """The kernel's counters of TCP connections, by which a slow link is named."""
    try:
        importlib.import_module("collector.host.vitals.tcp_info").established(lambda inode: False)
    except OSError as error:
        return limited(
            f"the kernel lists no TCP connections ({error}); slow links are not named",
            "load the kernel's tcp_diag module; in a container, allow NETLINK_SOCK_DIAG",
        )
    return ok("TCP_INFO can be read")


def check_gpus(driver: Path = Path("/proc/driver/nvidia/version")) -> Check:
    """What the GPUs say of themselves."""
    if not driver.exists():
        return ok("no NVIDIA driver on this host, so nothing to read")
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return limited(
            "nvidia-ml-py is not installed: temperature, clocks and errors of GPUs are not told",
            "pip install 'pacehound[evidence]'",
        )
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        return limited(
            f"NVML does not answer: {error}", "in a container, NVIDIA_DRIVER_CAPABILITIES must include utility"
        )
    return ok(f"NVML tells of {count}")


def check_processors() -> Check:
    """Whether the scheduler counts how long a rank waits for a processor."""
    if not importlib.import_module("collector.host.vitals.processors").are_waits_counted():
        return limited(
            "the kernel does not count who waits for one: other work on a host is not told from a slow rank",
            "a kernel with CONFIG_SCHED_INFO",
        )
    return ok("the kernel counts who waits for one")


def check_kernel_log() -> Check:
    """Where the kernel writes about GPU errors, lack of memory and links."""
    if not importlib.import_module("collector.host.kernel_log").may_be_read():
        return limited(
            "it may not be read: XID errors and kills for memory are told less well",
            "sysctl kernel.dmesg_restrict=0; in a container, --cap-add SYSLOG --device /dev/kmsg",
        )
    return ok("it can be read")


def check_modules(modules: Iterable[str], extra: str, consequence: str) -> Check:
    """Python packages that a part needs."""
    absent = []
    for module in modules:
        try:
            found = importlib.util.find_spec(module) is not None
        except (ImportError, ValueError):
            found = False
        if not found:
            absent.append(module)
    if absent:
        return missing(f"{', '.join(absent)} not installed: {consequence}", f"pip install 'pacehound[{extra}]'")
    return ok(f"{', '.join(modules)} installed")


def check_store(store: Path) -> Check:
    """The folder where history is kept."""
    from pacehound.runtime.head.client import live_owner

    owner = live_owner(store)
    if owner is not None:
        return ok(f"{store}, in use by process {owner[0].pid}")
    place = store
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK):
        return missing(f"{place} cannot be written", "give another folder with --store")
    return ok(f"{store}, {shutil.disk_usage(place).free >> 30} GiB left")


def check_alerts(settings: AlertSettings) -> Check:
    """Whether those who are to be told of incidents are there; nobody is told anything."""
    try:
        sinks = importlib.import_module("alerts.service").sinks_of(settings) if settings.tells_somebody else []
    except InvalidSetting as error:
        return missing(str(error), "set it as docs/alerts.md says")
    if not sinks:
        return ok("nobody is to be told")
    answers = {sink.name: sink.reach() for sink in sinks}
    away = [f"{name}: {answer.detail}" for name, answer in answers.items() if answer.outcome != "delivered"]
    if away:
        return missing("; ".join(away), "look at the address and the network; then pacehound alerts test")
    return ok(f"{', '.join(answers)} answer; `pacehound alerts test` sends an alert")


def check_traces(settings: TraceSettings) -> Check:
    """Whether whoever takes traces is there; it is sent an empty message."""
    if not settings.endpoint:
        return ok("nobody takes them (traces.endpoint)")
    from opentelemetry.sdk.trace.export import SpanExportResult

    from pacehound.runtime.span_exporter import SpanPost
    from pacehound.runtime.traces import traces_url

    try:
        url = traces_url("traces.endpoint", settings.endpoint)
    except InvalidSetting as error:
        return missing(str(error), "set traces.endpoint (docs/traces.md)")
    if SpanPost(url).export([]) is not SpanExportResult.SUCCESS:
        return missing(f"{url} does not take traces", "start the receiver, or look at the address (docs/traces.md)")
    return ok(f"{url} takes them")


def check_port(port: int = OTLP_PORT) -> Check:
    """The port of `pacehound up`."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return limited(
                f"port {port} is taken ({error.strerror}); `run` does not need it",
                "pacehound up --listen 127.0.0.1:PORT",
            )
    return ok(f"{port} is free for `pacehound up`")


def build_loops(console: Console) -> None:
    """Build the streams' inner loops in C; nothing where they came with the wheel, or without a head.

    Raises
    ------
    Unavailable
        They cannot be built here.

    """
    if find_spec("streams") is None or find_spec("numpy") is None:
        return
    with console.status("building the streams' inner loops (C, some seconds)"):
        importlib.import_module("streams.native_loops").loaded()


def build_fast_path(console: Console) -> None:
    """Build the C++ extension for the torch of this environment; takes some seconds.

    Raises
    ------
    Unavailable
        It cannot be built here.

    """
    if find_spec("torch") is None:
        console.print("no torch in this environment: there are no C++ hooks to build")
        return
    build = importlib.import_module("pacehound.instrument.build")
    with console.status("building the fast path (C++, some seconds)"):
        try:
            found = build.build()
        except Exception as error:
            raise Unavailable(f"the fast path does not build: {error}") from error
    console.print(f"built: {found}")


def print_checks(console: Console, checks: Mapping[str, Check]) -> None:
    """A table, with what to do under each thing that is not well."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, check in checks.items():
        mark, style = _MARKS[check.result]
        detail = Text(check.detail)
        if check.fix:
            detail.append(f"\n-> {check.fix}", style="bold")
        table.add_row(name, Text(mark, style=style), detail)
    console.print(table)
