"""Who may import whom (DESIGN section 2): the packages meet on topics, and a training process gets little."""

import ast
import json
import pickle
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest

from simulator.operations.job import OpJob
from simulator.operations.trace import generate
from tests.fakes.for_every import for_every

ROOT = Path(__file__).parents[2]
PARTS = ("collector", "streams", "storage", "alerts", "actuators", "simulator", "web")

# The rooms of `pacehound` and of each part, and which others of the same house each may import,
# besides the modules that lie beside them. What a folder's `__init__` says in words stands here for the machine.
ROOMS = {
    "pacehound.model": set(),
    "pacehound.bus": {"pacehound.model"},
    "pacehound.instrument": {"pacehound.model", "pacehound.trainer"},  # orders that a script need not know of
    "pacehound.trainer": set(),  # a script imports it by name: the standard library alone
    "pacehound.pages": {"pacehound.model"},
    "pacehound.runtime": {"pacehound.model", "pacehound.bus"},
    "pacehound.launcher": {
        "pacehound.model",
        "pacehound.bus",
        "pacehound.instrument",
        "pacehound.pages",
        "pacehound.runtime",
    },
    "collector.calls": set(),
    "collector.host": set(),
    "collector.agent": {"collector.calls", "collector.host"},
    "collector.importers": set(),
    "streams.rounds": set(),
    "streams.level": {"streams.watching"},
    "streams.watching": {"streams.rounds"},
    "streams.slow": {"streams.rounds", "streams.level", "streams.watching"},
    "streams.hang": {"streams.rounds", "streams.watching"},
    "streams.whatif": {"streams.rounds", "streams.watching"},
    "streams.job": {
        "streams.rounds",
        "streams.level",
        "streams.watching",
        "streams.slow",
        "streams.hang",
        "streams.whatif",
    },
    "streams.snapshots": {
        "streams.rounds",
        "streams.level",
        "streams.slow",
        "streams.hang",
        "streams.whatif",
        "streams.job",
    },
    "streams.kafka": {"streams.rounds", "streams.job", "streams.snapshots"},
    "streams.scoring": set(),
    "simulator.operations": set(),
    "simulator.suites": {"simulator.operations"},
    "actuators.acting": {"actuators.mitigation", "actuators.control"},  # plans, and the way in which they are applied
    "actuators.mitigation": set(),
    "actuators.control": set(),
    "actuators.recovery": set(),
    "actuators.validation": {"actuators.control"},
    "web.answers": set(),
}
"""`pacehound.cli` and `pacehound.runtime.embedded` meet everything; see FRONT_DOORS."""
BESIDE = {
    "pacehound": {"clock", "errors", "settings"},
    "collector": set(),
    "actuators": {"decision", "looks", "now"},
    "streams": {"arrays_in_c", "native_loops", "pipeline", "spread"},
    "simulator": None,
    "web": {"source"},
}
"""Modules that lie in no room and that rooms may import; all of them where it is None."""


def is_front_door(path):
    """Where all packages meet: the command line and the embedded runtime."""
    return path.startswith("pacehound/cli/") or path == "pacehound/runtime/embedded.py"


# Heavy or optional libraries, and the only places that may name them; nobody imports them when a package is imported.
CONFINED = {
    "torch": (
        "pacehound/instrument/",
        "pacehound/trainer/agreeing.py",
        "pacehound/cli/doctor_checks.py",
        "actuators/validation/",
        "bench/",
    ),
    "cvxpy": ("actuators/mitigation/quadratic.py",),
    "scipy": ("bench/", "actuators/recovery/restorer.py"),
    "faust": tuple(f"streams/kafka/{name}.py" for name in ("app", "assignor", "client", "hand_over")),
    "confluent_kafka": ("pacehound/bus/", "bench/rig/broker.py"),
    "cryptography": ("pacehound/runtime/head/certificate.py", "pacehound/bus/signing.py"),
    "prometheus_client": ("pacehound/runtime/",),
    "pynvml": ("collector/",),
    "lightning": ("pacehound/trainer/lightning.py", "bench/ordinary_jobs/"),
    "transformers": ("pacehound/trainer/hugging_face.py", "bench/ordinary_jobs/"),
    "chdb": ("storage/",),
    "clickhouse_connect": ("storage/",),
    "matplotlib": (
        "pacehound/pages/analysis/picture.py",
        "pacehound/pages/png.py",
        "pacehound/pages/whatif/picture.py",
    ),
}


class Import(NamedTuple):
    """A module that a statement loads, or may: of `from a import b`, `b` may be one."""

    name: str
    line: int
    is_at_load: bool
    """It is loaded when the module is: the statement stands in no function, and not for the type checker alone."""


@cache
def sources(package):
    """Each file with what it imports. Its tree is let go of at once: looking for garbage in all trees takes seconds."""
    found = [path for path in sorted((ROOT / package).rglob("*.py")) if "__pycache__" not in path.parts]
    return [(path.relative_to(ROOT).as_posix(), imports(path)) for path in found]


def absolute(node, path):
    """The modules that an import statement may load, relative ones resolved."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        package = path.removesuffix(".py").removesuffix("/__init__").split("/")
        if not path.endswith("/__init__.py"):
            package = package[:-1]
        package = package[: len(package) - node.level + 1]
        base = ".".join([*package, *([base] if base else [])])
    return [base, *(f"{base}.{alias.name}" for alias in node.names)]


def is_type_checking(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def imports(path):
    """Every import of a file."""
    own, found = path.relative_to(ROOT).as_posix(), []

    def visit(node, is_at_load):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.Import, ast.ImportFrom)):
                found.extend(Import(name, child.lineno, is_at_load) for name in absolute(child, own))
            elif not isinstance(child, ast.expr):  # an import is a statement, and most of a tree is not
                is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
                visit(child, is_at_load and not is_function and not is_type_checking(child))

    visit(ast.parse(path.read_text(encoding="utf-8")), is_at_load=True)
    return found


def forbidden(package, allowed_tops):
    wrong = []
    for path, imported in sources(package):
        if is_front_door(path):
            continue
        for name, line, _ in imported:
            top = name.split(".")[0]
            if top in (*PARTS, "pacehound", "bench", "tests") and top not in allowed_tops:
                wrong.append(f"{path}:{line} imports {name}")
    return wrong


@pytest.mark.parametrize("package", PARTS)
def test_a_part_imports_the_shared_words_and_itself_alone(package):
    assert sources(package)
    assert forbidden(package, {"pacehound", package}) == []


def test_the_shared_words_import_none_of_the_parts():
    assert len(sources("pacehound")) > 10
    assert forbidden("pacehound", {"pacehound"}) == []


def test_nobody_but_a_front_door_imports_a_front_door():
    wrong = [
        f"{path}:{line} imports {name}"
        for package in (*PARTS, "pacehound")
        for path, imported in sources(package)
        if not is_front_door(path) and not path.endswith("__main__.py")
        for name, line, _ in imported
        if name.startswith(("pacehound.cli", "pacehound.runtime.embedded"))
    ]
    assert wrong == []


def test_every_room_is_in_the_table():
    found = {
        ".".join(path.split("/")[:2])
        for package in BESIDE
        for path, _ in sources(package)
        if path.count("/") > 1 and not path.startswith("pacehound/cli/")
    }
    assert found == set(ROOMS)


@for_every({room: room for room in ROOMS})
def test_a_room_imports_only_the_rooms_that_it_may(room):
    package = room.split(".")[0]
    wrong = []
    for path, imported in sources(package):
        if not path.startswith(room.replace(".", "/") + "/") or is_front_door(path):
            continue
        for name, line, _ in imported:
            parts = name.split(".")
            if parts[0] != package or len(parts) < 2 or ".".join(parts[:2]) == room:
                continue
            is_room = (ROOT / parts[0] / parts[1]).is_dir()
            beside = BESIDE[package]
            allowed = ".".join(parts[:2]) in ROOMS[room] if is_room else beside is None or parts[1] in beside
            if not allowed and parts[1] != "__version__":
                wrong.append(f"{path}:{line} imports {name}")
    assert wrong == []


@for_every({room: room for room in [*ROOMS, "pacehound.cli", "storage", "alerts", "actuators", "web"]})
def test_a_room_says_what_comes_in_what_goes_out_and_what_it_must_not_import(room):
    lines = (ast.get_docstring(ast.parse((ROOT / room.replace(".", "/") / "__init__.py").read_text())) or "").lower()
    assert "in: " in lines
    assert "out: " in lines
    assert "import" in lines


@for_every({library: library for library in CONFINED})
def test_a_heavy_library_is_named_only_where_it_belongs(library):
    wrong = [
        f"{path}:{line}"
        for package in (*PARTS, "pacehound", "bench")
        for path, imported in sources(package)
        for name, line, _ in imported
        if name.split(".")[0] == library
        if not is_front_door(path) and not path.startswith(CONFINED[library])
    ]
    assert wrong == []


ADAPTERS = {"lightning", "hugging_face"}


def inside_training():
    """Modules that are loaded inside somebody's training process."""
    paths = [path for path, _ in sources("pacehound/instrument")]
    # Each of the two adapters is imported by a script that has imported its framework.
    trainer = [path for path, _ in sources("pacehound/trainer") if Path(path).stem not in ADAPTERS]
    return [*paths, *trainer]


def shared_words_within_reach():
    """What those modules load of Pacehound when they are imported, transitively."""
    imported = dict(sources("pacehound"))
    reached, waiting = set(), inside_training()
    while waiting:
        path = waiting.pop()
        if path in reached or path not in imported:
            continue
        reached.add(path)
        for name, _, is_at_load in imported[path]:
            if is_at_load and name.split(".")[0] == "pacehound":
                base = name.replace(".", "/")
                waiting += [f"{base}.py", f"{base}/__init__.py"]
    return reached, imported


def test_inside_a_training_process_is_the_standard_library_torch_and_pacehound_alone():
    reached, imported = shared_words_within_reach()
    assert "pacehound/instrument/__init__.py" in reached
    wrong = [
        f"{path}:{line} imports {name}"
        for path in sorted(reached)
        for name, line, is_at_load in imported[path]
        # The user's own sitecustomize comes after ours, as it would without us.
        if is_at_load
        if name.split(".")[0] not in {*sys.stdlib_module_names, "__future__", "pacehound", "torch", "sitecustomize"}
    ]
    assert wrong == []


def test_a_function_inside_a_training_process_imports_none_of_the_parts_either():
    wrong = [
        f"{path}:{line} imports {name}"
        for path, imported in (*sources("pacehound/instrument"), *sources("pacehound/trainer"))
        for name, line, _ in imported
        if name.split(".")[0] in PARTS
    ]
    assert wrong == []


def modules_loaded_by(modules):
    """What importing `modules` leaves loaded, in a fresh interpreter that sees nothing but this checkout."""
    code = (
        "import importlib, json, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def without_torch(path, imported, seen=frozenset()):
    """Neither this module nor any that it loads imports torch."""
    if path not in imported or path in seen:
        return True
    names = [name for name, _, is_at_load in imported[path] if is_at_load]
    if any(name.split(".")[0] == "torch" for name in names):
        return False
    paths = [name.replace(".", "/") + ".py" for name in names if name.startswith("pacehound.")]
    return all(without_torch(p, imported, seen | {path}) for p in paths)


def test_importing_the_instrument_loads_neither_numpy_nor_arrow_nor_torch():
    """torch itself loads numpy, so that the modules which import torch are covered by the walk above."""
    imported = dict(sources("pacehound"))
    paths = [p for p in inside_training() if "/native/" not in p and "/autoload/" not in p]
    paths = [p for p in paths if without_torch(p, imported)]
    modules = [p.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for p in paths]
    assert "pacehound.instrument" in modules
    loaded = {name.split(".")[0] for name in modules_loaded_by(modules)}
    assert loaded & {"numpy", "pyarrow", "torch", "msgspec", "google", "opentelemetry", "click", "rich"} == set()


def test_importing_a_part_loads_no_library_that_its_host_may_lack():
    """`pacehound[collector]` has no stream processor, no store and no torch."""
    modules = [p.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for p, _ in sources("collector")]
    loaded = {name.split(".")[0] for name in modules_loaded_by(modules)}
    assert (
        loaded
        & {
            "torch",
            "pandas",
            "chdb",
            "clickhouse_connect",
            "prometheus_client",
            "faust",
            "cvxpy",
            "streams",
            "storage",
            "simulator",
        }
        == set()
    )


@pytest.mark.parametrize(
    ("modules", "loads"),
    [
        (["pacehound.cli"], {"click"}),
        (["pacehound.cli", "pacehound.launcher.entry"], {"click", "msgspec"}),
        (["pacehound.cli", "pacehound.cli.history"], {"click", "msgspec"}),
    ],
    ids=["any command", "run", "a head is asked"],
)
def test_a_command_loads_what_it_needs_and_nothing_else(modules, loads):
    """Somebody waits for it: NumPy and Arrow are 0.2 s, pandas 0.4 s, the parts of a head 0.3 s."""
    loaded = {name.split(".")[0] for name in modules_loaded_by(modules)}
    heavy = {"click", "msgspec", "rich", "numpy", "pandas", "pyarrow", "httpx", "aiohttp", "opentelemetry"}
    assert loaded & heavy == loads
    assert loaded & set(PARTS) == set()


def modules_loaded_by_command(*arguments):
    """What a command has loaded when it has answered."""
    code = (
        "import json, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "import atexit\n"
        "atexit.register(lambda: print(json.dumps(sorted(sys.modules))))\n"
        "from pacehound.cli import pacehound\n"
        f"pacehound({[str(argument) for argument in arguments]!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_what_if_loads_no_engine_and_not_pandas(tmp_path):
    """Each of them takes longer than the analysis of a trace."""
    table, _ = generate(OpJob(n_dp=2, n_steps=2))
    pq.write_table(table, tmp_path / "trace.parquet")
    loaded = {name.split(".")[0] for name in modules_loaded_by_command("whatif", tmp_path / "trace.parquet")}
    assert loaded & {"pandas", "chdb", "matplotlib", "httpx", "opentelemetry"} == set()
    assert "numpy" in loaded


def test_files_of_calls_are_analysed_without_an_engine(tmp_path):
    entries = [
        {"process_group": ["0", "default_pg"], "collective_seq_id": 1, "profiling_name": "nccl:all_reduce",
         "time_created_ns": 10**18, "state": "scheduled", "input_sizes": [[8]], "output_sizes": [[8]],
         "input_dtypes": ["Float"], "output_dtypes": ["Float"], "is_p2p": False, "record_id": 0, "pg_id": 0,
         "p2p_seq_id": 0, "op_id": 1, "frames": [], "timeout_ms": 600000, "retired": False}
    ]  # fmt: skip
    dump = {"version": "2.10", "rank": 0, "entries": entries, "pg_config": {"0": {"name": "0", "ranks": "[0, 1]"}}}
    (tmp_path / "trace_0").write_bytes(pickle.dumps(dump))
    loaded = {name.split(".")[0] for name in modules_loaded_by_command("analyze", tmp_path)}
    assert loaded & {"pandas", "chdb", "matplotlib", "torch"} == set()
    assert "streams" in loaded


def test_an_incident_is_shown_without_numpy():
    """A head answers with it; who asks needs no arrays."""
    loaded = {name.split(".")[0] for name in modules_loaded_by(["pacehound.cli.history", "pacehound.pages.incidents"])}
    assert loaded & {"numpy", "pandas", "pyarrow", "httpx"} == set()


def test_each_test_file_has_a_name_of_its_own():
    """`make prove` collects them all in one run, which two of one name would end."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_every_package_of_the_tree_is_in_the_wheel():
    """They are listed one by one, and one that is forgotten is missed by who installs the wheel alone."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    made = {
        path.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for package in ("pacehound", *PARTS)
        for path in (ROOT / package).rglob("__init__.py")
    }
    assert sorted(listed) == sorted(made)
