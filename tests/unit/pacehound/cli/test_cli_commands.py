"""The front door: every command explains itself, answers a script, and fails with the right status."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from pacehound import cli
from pacehound.cli.doctor_checks import ok
from pacehound.cli.options import default_store
from pacehound.cli.own_packages import SIBLINGS, prefer_ours
from pacehound.errors import InvalidInput, Unavailable
from tests.fakes.for_every import for_every


def all_commands():
    context = click.Context(cli.pacehound)
    commands = {name: cli.pacehound.get_command(context, name) for name in cli.pacehound.list_commands(context)}
    for name, group in list(commands.items()):
        if isinstance(group, click.Group):
            commands |= {f"{name} {inner}": command for inner, command in group.commands.items()}
    return sorted(commands.items())


@for_every({name: (name, command) for name, command in all_commands()})
def test_every_command_and_option_has_help(named):
    name, command = named
    assert command.help, name
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, f"{name} {parameter.opts}"
    shown = CliRunner().invoke(cli.pacehound, [*name.split(), "--help"])
    assert shown.exit_code == 0
    assert command.help.split("\n")[0].split()[0] in shown.output


def test_every_command_that_answers_takes_json_and_those_with_settings_take_set():
    commands = dict(all_commands())
    letters = ("dead-letters list", "dead-letters show", "dead-letters replay")
    for name in (
        "run",
        "demo",
        "incidents",
        "sql",
        "doctor",
        "replay",
        "analyze",
        "whatif",
        "recover",
        "version",
        "status",
        *letters,
    ):
        assert "--json" in {opt for p in commands[name].params for opt in p.opts}
    on_kafka = ("topics", "alerts", "actuators", "simulate", "streams", "writer", "status", *letters)
    for name in (
        "run",
        "up",
        "agent",
        "demo",
        "flush",
        "incidents",
        "sql",
        "doctor",
        "replay",
        "analyze",
        "whatif",
        *on_kafka,
    ):
        assert "--set" in {opt for p in commands[name].params for opt in p.opts}
    for name in ("run", "up", "demo", "flush", "incidents", "sql", "doctor"):
        assert "--store" in {opt for p in commands[name].params for opt in p.opts}


@pytest.mark.parametrize(
    ("words", "offered"), [("pacehound fl", {"fleet", "flush"}), ("pacehound fleet dur", {"durations"})]
)
def test_the_shell_completes_commands_and_what_they_take(words, offered):
    environ = {"_PACEHOUND_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-m", "pacehound"], env=environ, capture_output=True, text=True, timeout=30, check=True
    )
    assert offered <= {line.removeprefix("plain,") for line in done.stdout.splitlines()}


def test_version_as_json():
    answer = CliRunner().invoke(cli.pacehound, ["version", "--json"])
    assert json.loads(answer.output)["schema"] == 1


def test_a_bad_setting_is_a_usage_error_that_names_it():
    answer = CliRunner().invoke(cli.pacehound, ["doctor", "--set", "no.such=1"])
    assert answer.exit_code == 2
    assert "no.such" in answer.stderr


@pytest.mark.parametrize(("error", "status"), [(InvalidInput("wrong"), 2), (Unavailable("away"), 1)])
def test_our_errors_become_a_line_and_a_status(monkeypatch, error, status):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr("pacehound.cli.doctor_checks.examine", fail)
    answer = CliRunner().invoke(cli.pacehound, ["doctor"])
    assert answer.exit_code == status
    assert answer.stderr == f"pacehound: {error}\n"


def test_doctor_answers_for_every_part(tmp_path, monkeypatch):
    # The real one takes seconds to load, and leaves loggers that pytest attends to in each later test.
    torch, distributed = types.ModuleType("torch"), types.ModuleType("torch.distributed")
    distributed.ProcessGroup = SimpleNamespace(register_pre_hook=None, register_post_hook=None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    answer = CliRunner().invoke(cli.pacehound, ["doctor", "--json", "--store", str(tmp_path / "s")])
    assert answer.exit_code == 0
    checks = json.loads(answer.stdout)["checks"]
    assert {"torch hooks", "fast path", "shared memory", "process watching", "agent", "head", "store", "port"} <= {
        check["name"] for check in checks
    }
    assert all(check["fix"] for check in checks if check["result"] == "missing")


def test_the_default_store_is_in_the_xdg_data_home(monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    assert str(default_store()) == "/somewhere/pacehound"
    monkeypatch.setenv("XDG_DATA_HOME", "relative is invalid by the specification")
    assert str(default_store()).endswith("/.local/share/pacehound")


def test_siblings_of_the_user_give_way_and_ours_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    theirs = types.ModuleType("collector")
    theirs.__file__ = str(tmp_path / "collector.py")
    monkeypatch.setitem(sys.modules, "collector", theirs)
    prefer_ours()
    assert "collector" not in sys.modules
    assert "" not in sys.path
    import collector
    from pacehound.cli.own_packages import ROOT

    assert sys.path[0] == str(ROOT)
    assert collector.__file__.startswith(str(ROOT))
    assert "collector" in SIBLINGS


def test_what_cannot_be_built_is_said_and_the_checks_are_shown_all_the_same(monkeypatch, tmp_path):
    def cannot(console):
        raise Unavailable("the NCCL shim does not build: no C compiler")

    built = []
    for name in ("build_loops", "build_fast_path"):
        monkeypatch.setattr(f"pacehound.cli.doctor_checks.{name}", built.append)
    monkeypatch.setattr("pacehound.cli.doctor_checks.build_shim", cannot)
    # To look at everything loads torch, for seconds.
    monkeypatch.setattr("pacehound.cli.doctor_checks.examine", lambda *_: {"python": ok("3.11")})
    answer = CliRunner().invoke(cli.pacehound, ["doctor", "--build", "--json", "--store", str(tmp_path / "s")])
    assert answer.exit_code == 1
    assert "no C compiler" in answer.stderr
    assert [one["name"] for one in json.loads(answer.stdout)["checks"]] == ["python"]
    assert len(built) == 2


def test_the_version_is_an_option_too():
    shown = CliRunner().invoke(cli.pacehound, ["--version"])
    assert (shown.exit_code, shown.output) == (0, CliRunner().invoke(cli.pacehound, ["version"]).output)


@pytest.mark.parametrize(
    ("typed", "meant"), [("incident", "incidents"), ("dead_letters", "dead-letters"), ("rnu", "run")]
)
def test_a_misspelt_command_is_told_what_may_have_been_meant(typed, meant):
    shown = CliRunner().invoke(cli.pacehound, [typed])
    assert shown.exit_code == 2
    assert f"No such command '{typed}'; did you mean '{meant}'?" in shown.output


def test_an_option_that_run_does_not_have_is_not_taken_for_the_command():
    shown = CliRunner().invoke(cli.pacehound, ["run", "--stroe", "here", "--", "true"])
    assert shown.exit_code == 2
    assert "No such option: --stroe" in shown.output
    assert "--store" in shown.output
