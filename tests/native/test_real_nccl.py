"""The shim before the real libnccl.so.2 (no GPU is needed for any of this)."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pacehound.instrument import profiler, shim
from tests.native.stub_jobs import COMPILER, NATIVE


def nccl_folder() -> Path | None:
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(place) / "nccl" / "lib" / "libnccl.so.2").is_file():
            return Path(place) / "nccl"
    return None


FOLDER = nccl_folder()
pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C compiler"),
    pytest.mark.skipif(FOLDER is None, reason="no libnccl.so.2; pip install nvidia-nccl-cu13"),
]

ASK = """
import ctypes, hashlib, json, os, sys
scope = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL) if sys.argv[2] == "direct" else ctypes.CDLL(None)
version, one, two = ctypes.c_int(), ctypes.create_string_buffer(128), ctypes.create_string_buffer(128)
scope.ncclGetErrorString.restype = ctypes.c_char_p
answers = [scope.ncclGetVersion(ctypes.byref(version)), version.value]
answers += [scope.ncclGetUniqueId(one), scope.ncclGetUniqueId(two)]
print(json.dumps(answers + [one.raw != two.raw, any(one.raw), scope.ncclGetErrorString(4).decode(),
                            scope.ncclGroupStart(), scope.ncclGroupEnd(), scope.ncclCommDestroy(None),
                            scope.ncclAllReduce(None, None, 1, 7, 0, None, None)]))
"""
RESOLVE = """
import ctypes, sys
everything = ctypes.CDLL(None)
print([name for name in sys.argv[1:] if not hasattr(everything, name)])
"""


def library() -> Path:
    assert FOLDER is not None
    return FOLDER / "lib" / "libnccl.so.2"


def exported(path: Path) -> set[str]:
    tool = shutil.which("nm")
    if tool is None:
        pytest.skip("no nm")
    listed = subprocess.run([tool, "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    return {fields[-1].partition("@")[0] for line in listed.splitlines() if (fields := line.split())}


def python(code: str, *arguments: str, preload: list[Path], environ: dict[str, str]) -> str:
    env = {"PATH": "/usr/bin:/bin", "LD_PRELOAD": ":".join(map(str, preload)), **environ}
    done = subprocess.run([sys.executable, "-S", "-c", code, *arguments], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nccl_answers_as_without_it(tmp_path: Path) -> None:
    environ = {"PACEHOUND_RUN_DIR": str(tmp_path), "PACEHOUND_JOB": "real"}
    bare = python(ASK, str(library()), "direct", preload=[], environ={})
    assert bare.startswith("[0, 2")
    assert python(ASK, str(library()), "preloaded", preload=[shim.build(), library()], environ=environ) == bare


def test_every_symbol_of_nccl_still_resolves(tmp_path: Path) -> None:
    symbols = sorted(name for name in exported(library()) if re.match(r"p?nccl[A-Z]", name))
    assert len(symbols) > 100
    unresolved = python(
        RESOLVE, *symbols, preload=[shim.build(), library()], environ={"PACEHOUND_RUN_DIR": str(tmp_path)}
    )
    assert unresolved == "[]"


def test_only_functions_of_nccl_are_exported() -> None:
    ours = {name for name in exported(shim.build()) if not name.startswith("pacehound_shim_")}  # for the plugin
    assert ours <= exported(library())
    assert len(ours) >= 23


def test_nothing_but_libc_is_linked() -> None:
    tool = shutil.which("readelf")
    if tool is None:
        pytest.skip("no readelf")
    listed = subprocess.run([tool, "-d", shim.build()], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"NEEDED.*\[(.*)\]", listed)
    assert all(re.match(r"lib(c|dl|pthread)\.so", name) for name in needed), needed
    assert "NODELETE" in listed


# Both headers in one file: ours first, under other names.
TAKEN = [
    "ncclComm_t", "ncclUniqueId", "ncclConfig_t", "ncclSimInfo_t", "ncclResult_t", "ncclDataType_t", "ncclRedOp_t",
    "cudaStream_t", "ncclSuccess", "ncclSystemError", "ncclInvalidArgument", "ncclInvalidUsage", "ncclInProgress",
]  # fmt: skip
SAME = r"""
#include <nccl.h>
#define SAME(a, b) _Static_assert((a) == (b), #a)
SAME(sizeof(ours_ncclUniqueId), sizeof(ncclUniqueId));
SAME(sizeof(ours_ncclDataType_t), sizeof(ncclDataType_t));
SAME(sizeof(ours_ncclRedOp_t), sizeof(ncclRedOp_t));
SAME(sizeof(ours_ncclResult_t), sizeof(ncclResult_t));
SAME(offsetof(ours_ncclConfig_t, comm_name), offsetof(ncclConfig_t, commName));
SAME(offsetof(ours_ncclConfig_t, blocking), offsetof(ncclConfig_t, blocking));
SAME((unsigned)NCCL_CONFIG_MAGIC, NCCL_API_MAGIC);
SAME((int)ours_ncclInvalidArgument, (int)ncclInvalidArgument);
SAME((int)ours_ncclInvalidUsage, (int)ncclInvalidUsage);
SAME((int)ours_ncclInProgress, (int)ncclInProgress);
SAME(NCCL_NOCOLOR, NCCL_SPLIT_NOCOLOR);
SAME(NCCL_DATA_TYPES, ncclNumTypes);
SAME(NCCL_BUILT_IN_REDOPS, ncclNumOps);
SAME(ncclFloat32, 7); SAME(ncclBfloat16, 9); SAME(ncclFloat8e5m2, 11); SAME(ncclMax, 2); SAME(ncclMin, 3);
"""


def test_our_declarations_are_those_of_nccl_h(tmp_path: Path) -> None:
    assert FOLDER is not None
    assert COMPILER is not None
    header = FOLDER / "include" / "nccl.h"
    if not header.is_file():
        pytest.skip("no nccl.h")
    (tmp_path / "cuda_runtime.h").write_text("typedef struct CUstream_st *cudaStream_t;\n")  # all that it needs
    (tmp_path / "cuda_fp16.h").touch()
    renamed = "".join(f"#define {name} ours_{name}\n" for name in TAKEN)
    restored = "".join(f"#undef {name}\n" for name in TAKEN)
    (tmp_path / "same.c").write_text(f'{renamed}#include "nccl_abi.h"\n{restored}{SAME}')
    includes = [f"-I{NATIVE}", f"-I{header.parent}", f"-I{tmp_path}"]
    done = subprocess.run(
        [COMPILER, "-std=gnu11", "-fsyntax-only", *includes, tmp_path / "same.c"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


ASK_VERSION = """
import ctypes, sys
version = ctypes.c_int()
ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(version))
print(version.value)
"""


def is_a_nccl_for_both(library: Path, folder: Path) -> int:
    """It answers behind the shim as without it, and looks for a plugin by a name that ours has; its version."""
    environ = {"PACEHOUND_RUN_DIR": str(folder), "PACEHOUND_JOB": "real"}
    bare = python(ASK, str(library), "direct", preload=[], environ={})
    assert python(ASK, str(library), "preloaded", preload=[shim.build(), library], environ=environ) == bare
    asked_for = set(re.findall(rb"ncclProfiler_v\d+", library.read_bytes()))
    ours = {name.encode() for name in exported(profiler.build()) if name.startswith("ncclProfiler_v")}
    assert asked_for & ours, f"it asks for {sorted(asked_for)}, and the plugin has {sorted(ours)}"
    version = int(python(ASK_VERSION, str(library), preload=[], environ={}))
    assert profiler.refusal(profiler.build(), version) is None
    return version


def test_the_installed_nccl_takes_an_interface_of_the_plugin(tmp_path: Path) -> None:
    is_a_nccl_for_both(library(), tmp_path)


@pytest.mark.prove
@pytest.mark.parametrize(
    ("release", "sees_ends"),
    [("2.27.7", False), ("2.28.9", True), ("2.30.7", True), ("2.31.2", False), ("2.32.3", False)],
)
def test_every_nccl_of_these_years_does(tmp_path: Path, release: str, sees_ends: bool) -> None:
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        pytest.skip("no uv")
    install = [uv, "pip", "install", "--quiet", "--no-deps", "--target", tmp_path, f"nvidia-nccl-cu13=={release}"]
    subprocess.run(install, check=True)
    version = is_a_nccl_for_both(tmp_path / "nvidia" / "nccl" / "lib" / "libnccl.so.2", tmp_path / "run")
    assert version == sum(int(part) * 100**power for power, part in zip((2, 1, 0), release.split("."), strict=True))
    assert (profiler.without_ends(profiler.build(), version) is None) == sees_ends
