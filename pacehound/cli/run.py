"""`pacehound run`: watch a training job while it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pacehound.cli.options import json_option, set_option, store_option


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--job", help="Name of the job, the same on all its hosts.  [default: the scheduler's or torchrun's id]")
@click.option(
    "--endpoint",
    metavar="URL",
    help="Send to this OTLP/HTTP receiver (`pacehound up`, any Collector), or to Kafka: kafka://HOST:PORT[,HOST:PORT].",
)
@click.option(
    "--nccl",
    type=click.Choice(["shim", "profiler"]),
    multiple=True,
    help="Watch NCCL itself, too: shim, a library before NCCL that sees every call (LD_PRELOAD); profiler, a plugin "
    "that sees kernels and network transfers (NCCL_PROFILER_PLUGIN; which of them: docs/nccl-profiler.md). Both may be "
    "given: each call is told of once. Built at first use; needs a C compiler.",
)
@store_option
@set_option
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(
    command: tuple[str, ...],
    job: str | None,
    endpoint: str | None,
    nccl: tuple[str, ...],
    store: Path,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run COMMAND, a training job, and watch it.

    Exit status, signals, standard input and output are those of COMMAND. Without --endpoint a head node is started on
    this machine, or the one that owns the store is used. Incidents are a line each on stderr at the end; with --json
    they are the last line on stdout. (With --endpoint they are where the receiver keeps them.)

    Example: pacehound run -- torchrun --nproc-per-node 4 train.py
    """
    from pacehound.launcher.entry import check_command, run_command

    check_command(command)
    code = run_command(
        command, job=job, endpoint=endpoint, nccl=nccl, store=store, overrides=overrides, as_json=as_json
    )
    sys.exit(code)
