"""The command line: one file per command, and the only place but the embedded runtime where all packages meet.

In: arguments, the environment. Out: an answer on stdout, notes on stderr, an exit status.
May import everything; nothing but `pacehound.__main__` imports it. A command imports what it needs when it is called,
so that whoever asks for one thing does not wait for all others.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from pacehound import __version__
from pacehound.cli.options import say
from pacehound.cli.own_packages import prefer_ours
from pacehound.cli.without_pandas import leave_out_pandas
from pacehound.errors import InvalidInput, PacehoundError, nearest

COMMANDS = (
    "actuators",
    "agent",
    "alerts",
    "analyze",
    "approve",
    "dead-letters",
    "decline",
    "demo",
    "doctor",
    "evaluate",
    "fleet",
    "flush",
    "incidents",
    "order",
    "pause",
    "plan",
    "profile",
    "recover",
    "replay",
    "resume",
    "run",
    "simulate",
    "sql",
    "status",
    "streams",
    "top",
    "topics",
    "traces",
    "up",
    "validate",
    "version",
    "web",
    "whatif",
    "writer",
)
"""Each is the function of that name in the module of that name, with _ for -."""


class Commands(click.Group):
    """Loads the subcommand that is asked for, and turns our errors into a line on stderr and an exit status.

    The status is 2 for bad input and 1 for a failure.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them, by name."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; its module is imported now."""
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"pacehound.cli.{name}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of these arguments; of a misspelt one it is said what may have been meant."""
        if args[0] not in COMMANDS and not ctx.resilient_parsing and (near := nearest(args[0], COMMANDS)):
            ctx.fail(f"No such command {args[0]!r}; did you mean {near!r}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand."""
        try:
            return super().invoke(ctx)
        except PacehoundError as error:
            say(f"pacehound: {error}", err=True)
            ctx.exit(2 if isinstance(error, InvalidInput) else 1)
        except BrokenPipeError:
            # Whoever read our answer has seen enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(1)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="%(version)s", help="Print the version.")
def pacehound() -> None:
    """Watch distributed training jobs and name the rank that slows or hangs them."""


def main() -> None:
    """Start of the `pacehound` command."""
    prefer_ours()
    leave_out_pandas()
    pacehound(prog_name="pacehound")
