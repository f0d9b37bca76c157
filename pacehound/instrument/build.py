"""The native hooks: where their build lies, and how it is made.

A build is tied to one torch, one Python and one source, and all three are in its path. It is made by the launcher
or by `pacehound doctor`, never inside a training process, which only looks whether it is there.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Any

from pacehound.instrument import native_build

NAME = "pacehound_c10d_hooks"
_FOLDER = Path(__file__).resolve().parent / "native"
_SOURCE = _FOLDER / "c10d_hooks.cpp"
_HEADERS = Path(__file__).resolve().parents[2] / "collector" / "native"
_SOURCES = (_SOURCE, *sorted(_FOLDER.glob("*.h")), _HEADERS / "ring.h", _HEADERS / "ring_room.h")
_SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]


def path() -> Path:
    """Where the build for this Python and its torch belongs.

    Raises
    ------
    OSError
        The sources are not there.
    importlib.metadata.PackageNotFoundError
        There is no torch.

    """
    digest = native_build.digest(_SOURCES)
    folder = f"{importlib.metadata.version('torch')}-{sys.implementation.cache_tag}-{digest}"
    return native_build.place(folder, f"{NAME}{_SUFFIX}")


def find() -> Path | None:
    """The build, where there is one."""
    return native_build.existing(path)


def reason_unavailable() -> str | None:
    """Why the native hooks cannot be built here; None where they can, or are."""
    try:
        importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "torch is not installed for this Python"
    for source in _SOURCES:
        if not source.is_file():
            return f"{source} is missing; install pacehound again"
    if find() is not None:
        return None
    if _compiler() is None:
        return "no C++ compiler; install g++ or clang++, or name one in CXX"
    import sysconfig

    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return f"the headers of Python are missing ({sysconfig.get_path('include')}/Python.h); install python3-dev"
    return None


def build() -> Path:
    """Compile the native hooks, try whether they load, and put them where `find` looks. Takes a quarter of a minute.

    Raises
    ------
    RuntimeError
        They cannot be built here, the compiler failed, or torch refuses to load the result; says which.

    """
    reason = reason_unavailable()
    if reason is not None:
        raise RuntimeError(reason)
    return native_build.made_once(path(), make)


def make(made: Path) -> None:
    """Compile the native hooks, and try whether they load; errors as in `build`."""
    compile_it = [*_command(), str(_SOURCE), "-o", str(made), *_libraries()]
    native_build.run(compile_it, "compiling the native hooks")
    native_build.run([sys.executable, "-c", _TRY, str(made)], "loading the native hooks")


_TRY = f"""
import importlib.util, sys, torch, torch.distributed as dist
spec = importlib.util.spec_from_file_location({NAME!r}, sys.argv[1])
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
native.attach(dist.group.WORLD, bytes(16), [0], False, "", True)
native.detach(dist.group.WORLD)
dist.destroy_process_group()
"""
"""It takes a process group for what torch does only where both have been compiled alike."""


def _as_torch_was_compiled(of_torch: Any) -> list[str]:
    """By which it tells types of pybind11 apart, and whose strings it takes, where it says so: older ones do."""
    flags = [
        f'-DPYBIND11_{name}="{said}"'
        for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI")
        if (said := getattr(of_torch, f"_PYBIND11_{name}", None)) is not None
    ]
    strings = getattr(of_torch, "_GLIBCXX_USE_CXX11_ABI", None)
    return flags if strings is None else [*flags, f"-D_GLIBCXX_USE_CXX11_ABI={int(strings)}"]


def has_hooks() -> bool:
    """Whether the process groups of this torch have hooks; of an older one calls are seen in its dispatcher."""
    from torch.distributed import ProcessGroup

    return hasattr(ProcessGroup, "register_pre_hook")


def _compiler() -> str | None:
    return native_build.program(os.environ.get("CXX"), "g++", "clang++")


def _command() -> list[str]:
    import sysconfig

    import torch
    from torch.utils import cpp_extension

    includes = [*cpp_extension.include_paths(), sysconfig.get_path("include"), str(_HEADERS)]
    compiler = _compiler()
    assert compiler is not None
    return [
        compiler,
        "-O2",
        "-std=c++20",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        "-DUSE_DISTRIBUTED",
        "-DUSE_C10D_GLOO",
        *([] if has_hooks() else ["-DPACEHOUND_DISPATCHED"]),
        *_as_torch_was_compiled(torch._C),
        f"-DTORCH_EXTENSION_NAME={NAME}",
        *(f"-I{folder}" for folder in includes),
    ]


def _libraries() -> list[str]:
    from torch.utils.cpp_extension import library_paths

    folders = [f"-L{folder}" for folder in library_paths()]
    return [*folders, "-ltorch_python", "-ltorch_cpu", "-ltorch", "-lc10"]
