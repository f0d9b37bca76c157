"""One command, one short subcommand per process."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pacehound import __version__
from pacehound.cli_options import default_store, json_option, print_json, set_option
from pacehound.cli_whatif import whatif
from pacehound.errors import InvalidInput, PacehoundError, StoreOwned
from pacehound.head.siblings import SIBLINGS, prefer_ours
from pacehound.settings import Settings

# What a command needs is imported in that command: who asks for one thing does not wait for all others.
if TYPE_CHECKING:
    from pacehound.events import DeadLetter, Finding
    from pacehound.scoreboard import Row
    from pacehound.steps import StepLog

_PART_OF_A_SUITE = 20
"""So many series of each suite are scored where none is named: under a minute in all."""
_PART_OF_THE_CAUSES = 3
"""And so many jobs of each source."""

F = TypeVar("F", bound=Callable[..., Any])


def _absolute(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path:
    return (value or default_store()).expanduser().absolute()


store_option = click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    callback=_absolute,
    help="Folder of the history.  [default: pacehound in your XDG data home]",
)


class Commands(click.Group):
    """Turns our errors into a line on stderr and an exit status: 2 for bad input, 1 for a failure."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand."""
        try:
            return super().invoke(ctx)
        except PacehoundError as error:
            click.echo(f"pacehound: {error}", err=True)
            ctx.exit(2 if isinstance(error, InvalidInput) else 1)
        except BrokenPipeError:
            # Whoever read our answer has seen enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(1)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def pacehound() -> None:
    """Watch distributed training jobs and name the rank that slows or hangs them."""


@pacehound.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
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
    "that sees kernels and network transfers (NCCL_PROFILER_PLUGIN; NCCL 2.28 to 2.30). Built at first use; needs a C "
    "compiler.",
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
    this machine, or the one that owns the store is used. Incidents are summarised on stderr at the end; with --json
    they are the last line on stdout. (With --endpoint they are where the receiver keeps them.)

    Example: pacehound run -- torchrun --nproc-per-node 4 train.py
    """
    from pacehound.launcher.entry import check_command, only_route, run_command

    check_command(command)
    code = run_command(
        command, job=job, endpoint=endpoint, nccl=only_route(nccl), store=store, overrides=overrides, as_json=as_json
    )
    sys.exit(code)


@pacehound.command()
@click.option("--listen", metavar="ADDRESS", default="127.0.0.1:4318", show_default=True, help="HOST:PORT of the door.")
@click.option("--record", type=click.Path(path_type=Path), help="Write every message to this new file, for `replay`.")
@click.option("--listener-fd", type=int, hidden=True)
@click.option("--until-released", is_flag=True, hidden=True)
@store_option
@set_option
def up(
    listen: str,
    record: Path | None,
    listener_fd: int | None,
    until_released: bool,
    store: Path,
    overrides: tuple[str, ...],
) -> None:
    """Run a head node: take OTLP over HTTP from other hosts, watch their jobs, keep the history.

    Unless ADDRESS is loopback, senders must show a token: that of PACEHOUND_TOKEN, or one that is made up and printed.
    """
    from pacehound.embedded import listener_of, run_head
    from pacehound.head.address import parse_address
    from pacehound.head.serve import Doors
    from pacehound.head.token import token_for
    from pacehound.recording import RecordingWriter

    log_to_stderr()
    address = parse_address(listen)
    token = token_for(address, os.environ)
    doors = Doors(address=address, listener=listener_of(listener_fd), token=token, until_released=until_released)
    try:
        run_head(
            settings=Settings.load(os.environ, overrides),
            folder=store,
            doors=doors,
            recording=RecordingWriter(record) if record else None,
            on_ready=lambda owner: None if until_released else click.echo(ready_words(owner.url, token), err=True),
        )
    except StoreOwned as error:
        click.echo(f"pacehound: {error}", err=True)
        sys.exit(3 if until_released else 1)


def ready_words(url: str, token: str) -> str:
    """What to type on the other hosts."""
    secret = f"PACEHOUND_TOKEN={token} " if token else ""
    return f"pacehound: ready. On each training host:\n  {secret}pacehound run --endpoint {url} -- COMMAND…"


@pacehound.command(hidden=True)
@click.option("--run-dir", type=click.Path(path_type=Path, file_okay=False), required=True, help="The run's folder.")
@click.option("--endpoint", metavar="URL", required=True, help="Where to send: http(s)://… or kafka://HOST:PORT.")
@click.option("--lifeline-fd", type=int, help="A pipe that closes when `pacehound run` is gone.")
@set_option
def agent(run_dir: Path, endpoint: str, lifeline_fd: int | None, overrides: tuple[str, ...]) -> None:
    """Send what the ranks of this host write into their rings (started by `pacehound run`).

    Headers for the receiver are taken from OTEL_EXPORTER_OTLP_HEADERS.
    """
    from collector.agent import run as run_agent
    from pacehound.launcher.lifeline import hold
    from pacehound.otlp_headers import HEADERS_VARIABLE, parse_headers

    log_to_stderr()
    if lifeline_fd is not None:
        hold(lifeline_fd, run_dir)
    headers = parse_headers(os.environ.get(HEADERS_VARIABLE, ""))
    sys.exit(run_agent(run_dir, endpoint, headers, Settings.load(os.environ, overrides)))


@pacehound.command()
@click.option("--iterations", type=click.IntRange(120), default=300, show_default=True, help="Steps of the job.")
@click.option("--store", type=click.Path(path_type=Path, file_okay=False), help="Keep the history here, too.")
@set_option
@json_option
def demo(iterations: int, store: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Simulate a training job in which one rank becomes slow, and watch it: no GPU, no torch, no Kafka.

    What was found is held against what the simulator did. Exit status 0 when it agrees, else 1.
    """
    from pacehound.embedded import open_parts
    from pacehound.head.demo import run_demo, write_demo
    from simulator.faults import SlowCompute
    from simulator.job import JobSpec, simulate

    slow = SlowCompute(ranks=(2,), factor=1.5, from_step=iterations // 3, to_step=iterations * 2 // 3)
    spec = JobSpec(job="demo", iterations=iterations, faults=(slow,))
    settings = Settings.load(os.environ, overrides)
    with tempfile.TemporaryDirectory(prefix="pacehound-demo-") as scratch:
        folder = store.absolute() if store else Path(scratch)
        result = run_demo(lambda: simulate(spec), lambda: open_parts(settings, folder), settings)
    write_demo(result, sys.stdout, as_json=as_json)
    sys.exit(0 if result.agrees else 1)


@pacehound.command()
@click.option("--job", help="Only this job's.")
@store_option
@set_option
@json_option
def incidents(job: str | None, store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show incidents: who, since when, how much, what it costs, how we know."""
    from pacehound.history import history
    from pacehound.report import incidents_answer, print_incidents, terminal

    Settings.load(os.environ, overrides)
    with history(store) as answers:
        found, decisions = answers.incidents(job)
    if as_json:
        print_json(incidents_answer(found, decisions))
    elif found:
        print_incidents(terminal(sys.stdout), found, decisions)
    else:
        click.echo("no incident" + (f" of job {job}" if job else ""))


@pacehound.command()
@click.argument("statement")
@store_option
@set_option
@json_option
def sql(statement: str, store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Ask the history in ClickHouse SQL (reading statements only).

    Example: pacehound sql "SELECT job, count() FROM incidents GROUP BY job"
    """
    from pacehound.head.rows import print_rows, rows_answer
    from pacehound.history import history

    Settings.load(os.environ, overrides)
    with history(store) as answers:
        table = answers.sql(statement)
    if as_json:
        print_json(rows_answer(table))
    else:
        print_rows(table, sys.stdout)


@pacehound.command()
@click.option(
    "--build",
    is_flag=True,
    help="Compile the detectors, the NCCL shim and, for the torch installed here, the C++ hooks.",
)
@store_option
@set_option
@json_option
def doctor(build: bool, store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Say what works on this host, what does not, and how to fix it."""
    import msgspec

    from pacehound.doctor import build_fast_path, build_shim, compile_detectors, examine, print_checks
    from pacehound.report import terminal

    Settings.load(os.environ, overrides)
    if build:
        compile_detectors(terminal(sys.stderr))
        build_shim(terminal(sys.stderr))
        build_fast_path(terminal(sys.stderr))
    checks = examine(store)
    if as_json:
        print_json({"schema": 1, "checks": msgspec.to_builtins(checks)})
    else:
        print_checks(terminal(sys.stdout), checks)


@pacehound.command()
@store_option
@set_option
def writer(store: Path, overrides: tuple[str, ...]) -> None:
    """Write what is on Kafka into the history: a ClickHouse server (store.url), or the folder --store.

    Any number of them share the work on a server; a folder belongs to one. Each can be killed at any moment.

    Example: pacehound writer --set kafka.servers=broker:9092 --set store.url=http://clickhouse:8123/pacehound
    """
    from storage.process import run as run_writer

    log_to_stderr()
    run_writer(Settings.load(os.environ, overrides), store)


@pacehound.command()
@set_option
def streams(overrides: tuple[str, ...]) -> None:
    """Run a worker of the streams on Kafka: name slow and hung ranks of all jobs.

    Any number of them share the work; each can be killed at any moment. The topics must be there (`pacehound topics`).

    Example: pacehound streams --set kafka.servers=broker:9092
    """
    from streams.process import run as run_streams

    log_to_stderr()
    sys.exit(run_streams(Settings.load(os.environ, overrides)))


@pacehound.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@set_option
@json_option
def replay(file: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Run the pipeline over a recording (`pacehound up --record FILE`) and show the incidents.

    With --json every event that the pipeline concludes is printed, in log order; the same recording gives the same
    answer, byte for byte.
    """
    from pacehound.head.replay import print_replay, replayed, write_events
    from pacehound.recording import Recording
    from pacehound.report import terminal
    from streams.pipeline import Pipeline

    pipeline = Pipeline(Settings.load(os.environ, overrides))
    recording = Recording(file)
    if as_json:
        write_events(replayed(recording, pipeline), sys.stdout)
    else:
        print_replay(replayed(recording, pipeline), terminal(sys.stdout))
    if recording.torn_bytes:
        click.echo(f"pacehound: the last {recording.torn_bytes} bytes of {file} are no whole message", err=True)


@pacehound.command()
@click.argument("paths", metavar="PATH…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--history",
    metavar="PATH",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Logs of earlier runs of the same job; may be repeated.",
)
@click.option("--png", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Draw the series here.")
@set_option
@json_option
def analyze(
    paths: tuple[Path, ...], history: tuple[Path, ...], png: Path | None, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Say what is wrong with a training job from files that it left.

    Call files: dumps of the Flight Recorder, logs of NCCL's Inspector, answers of NCCL's RAS, traces of torch.profiler,
    scrapes of xpu_timer; those of one directory are read as one job. Step-time logs: Megatron, MLPerf,
    step:…train_time: logs, CSV. Plain or compressed; a directory stands for the files below it. Exit status 2 when no
    file could be read.

    Examples: pacehound analyze dumps/, pacehound analyze train.log --png train.png
    """
    from collector.sources.recognise import read_call_files
    from collector.sources.step_logs.recognise import read_step_logs
    from pacehound.analysis.answer import Analysis, Refused, analysed, analysis_answer, read_files
    from pacehound.analysis.calls import call_source
    from pacehound.analysis.files import files_of
    from pacehound.analysis.page import print_analysis
    from pacehound.analysis.picture import draw
    from pacehound.report import terminal
    from streams.postmortem import findings_of
    from streams.step_series import earlier_runs, follow, watch_for

    settings = Settings.load(os.environ, overrides)
    found = read_call_files(files_of(paths))
    calls = tuple(call_source(one.folder, one.files, findings_of(one.files), paths) for one in found.sets)
    refused_calls = [Refused(path=str(one.path), reason=one.reason) for one in found.refused]
    logs, refused = read_files(found.others, read_step_logs)
    past, refused_past = read_files(files_of(history), read_step_logs)
    earlier = earlier_runs([log for logs_of_file in past for log in logs_of_file], min_change=settings.slow.min_change)

    def followed(log: StepLog) -> tuple[Sequence[Finding], Sequence[Finding]]:
        return follow(log, watch_for(log, min_change=settings.slow.min_change, earlier=earlier))

    sources = tuple(analysed(logs_of_file, followed) for logs_of_file in logs)
    analysis = Analysis(sources=sources, refused=(*refused_calls, *refused, *refused_past), calls=calls)
    if png is not None and sources:
        draw(sources, png)
    if as_json:
        print_json(analysis_answer(analysis))
    else:
        print_analysis(terminal(sys.stdout), analysis)
    sys.exit(0 if sources or calls else 2)


pacehound.add_command(whatif)


@pacehound.command()
@click.argument("paths", metavar="[PATH]…", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--truth",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Answers about the logs PATH… (JSON, see pacehound/truth_file.py).",
)
@click.option(
    "--suite",
    "suites",
    metavar="NAME",
    multiple=True,
    help="Score this suite in full; may be repeated.  [default: a part of each]",
)
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Seeds of the suites.")
@set_option
@json_option
def evaluate(
    paths: tuple[Path, ...],
    truth: Path | None,
    suites: tuple[str, ...],
    seeds: int,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Score the detection against known answers: of synthetic jobs, or of logs whose answers FILE has.

    Suites: one_node, four_node, clean, drift, speedup, intermittent, schedule, batch_ramp, delay_20, delay_12 (step
    times), calls (whole jobs, with the culprits), root_cause (whole jobs of every class through every source: a fault
    is expected where the source shows enough to name it).

    Example: pacehound evaluate --truth answers.json run-17.log run-18.log
    """
    from pacehound.report import terminal
    from pacehound.scoreboard import print_scoreboard, scoreboard_answer

    if paths and truth is None:
        raise InvalidInput("logs are scored against answers: give --truth FILE")
    settings = Settings.load(os.environ, overrides)
    rows = _score_logs(paths, truth, settings) if truth else []
    if suites or not truth:
        rows += _score_suites(suites, range(seeds), settings)
    if as_json:
        print_json(scoreboard_answer(rows))
    else:
        print_scoreboard(terminal(sys.stdout), rows)


def _score_logs(paths: tuple[Path, ...], truth: Path, settings: Settings) -> list[Row]:
    from collector.sources.step_logs.recognise import read_step_logs
    from pacehound.analysis.files import files_of
    from pacehound.scoreboard import row_of
    from pacehound.truth_file import TruthFile
    from streams.evaluate import ONSET_WITHIN, score
    from streams.step_series import follow, watch_for

    answers = TruthFile.read(truth)
    rows = []
    for path in files_of(paths) or [truth.parent / answer.path for answer in answers.logs]:
        answer = answers.about(path)
        for log in read_step_logs(path):
            findings, _ = follow(log, watch_for(log, min_change=settings.slow.min_change))
            within = ONSET_WITHIN if answer.onset_within is None else answer.onset_within
            case = str(path) if log.rank is None else f"{path} rank {log.rank}"
            rows.append(row_of("logs", case, score(findings, answer.of(log), onset_within=within)))
    return rows


def _score_suites(names: tuple[str, ...], seeds: range, settings: Settings) -> list[Row]:
    from pacehound.scoreboard import row_of
    from simulator.call_jobs import CALL_JOBS, step_truth_of
    from simulator.job import simulate
    from simulator.step_times import POPULATIONS
    from streams.evaluate import Score, score
    from streams.step_series import earlier_runs, follow, watch_for
    from streams.whole_job import findings_of_job

    known = [*POPULATIONS, "calls", "root_cause"]
    if unknown := sorted(set(names) - set(known)):
        raise InvalidInput(f"there is no suite {', '.join(unknown)}; there are {', '.join(known)}")
    rows = []
    for name in names or known:
        click.echo(f"pacehound: scoring {name}", err=True)
        if name == "calls":
            for case, make in CALL_JOBS.items():
                jobs = [simulate(make(seed)) for seed in seeds]
                scores = [score(findings_of_job(job.events(), settings), step_truth_of(job)) for job in jobs]
                rows.append(row_of(name, case, Score.total(scores)))
            continue
        if name == "root_cause":
            rows += _score_root_causes(len(seeds), bool(names), settings)
            continue
        for seed in seeds:
            scores = []
            for series in POPULATIONS[name].series(seed, None if names else _PART_OF_A_SUITE):
                watch = watch_for(
                    series.log,
                    min_change=settings.slow.min_change,
                    earlier=earlier_runs(series.earlier, min_change=settings.slow.min_change),
                )
                scores.append(score(follow(series.log, watch)[0], series.truth))
            rows.append(row_of(name, f"seed {seed}", Score.total(scores)))
    return rows


def _score_root_causes(n_seeds: int, is_whole: bool, settings: Settings) -> list[Row]:
    """One row per source; a seed stands for a job of each scenario."""
    from pacehound.scoreboard import Row
    from simulator.job import simulate
    from simulator.root_cause_jobs import SCENARIOS, SOURCES, SUSPECT_AFTER_S, cases
    from streams.verdicts import VerdictScore, score_verdicts
    from streams.whole_job import findings_of_job

    n_cases = n_seeds * len(SCENARIOS) if is_whole else _PART_OF_THE_CAUSES
    settings = replace(settings, hang=replace(settings.hang, suspect_after_s=SUSPECT_AFTER_S))
    rows = []
    for source in SOURCES:
        total = VerdictScore()
        for case in cases(source, n_cases):
            total += score_verdicts(findings_of_job(simulate(case.spec).events(), settings), case.truth)
        rows.append(
            Row(
                suite="root_cause",
                case=source,
                expected=total.must_name,
                found=total.must.get("named", 0),
                precision=None,
                recall=total.named_share,
                delay_iterations=None,
                false_alarms=total.all_of("innocent"),
                culprit_accuracy=total.named_share,
            )
        )
    return rows


@pacehound.command()
@set_option
def topics(overrides: tuple[str, ...]) -> None:
    """Create the topics on Kafka that are missing and check those that are there, then end.

    Every process does the same when it starts; run this first where only one account may create topics.
    """
    from pacehound.bus.kafka_topics import ensure_topics
    from pacehound.topics import TOPICS

    settings = Settings.load(os.environ, overrides).kafka
    ensure_topics(settings)
    click.echo(f"pacehound: {len(TOPICS)} topics of {settings.prefix}* are as they should be", err=True)


@pacehound.command()
@set_option
def alerts(overrides: tuple[str, ...]) -> None:
    """Tell people of the incidents on Kafka, once per state of each, until stopped."""
    from alerts.service import run as run_alerts

    log_to_stderr()
    run_alerts(Settings.load(os.environ, overrides))


@pacehound.command()
@set_option
def actuators(overrides: tuple[str, ...]) -> None:
    """Decide what would be done about the incidents on Kafka, once each, until stopped; nothing is done."""
    from actuators.service import run as run_actuators

    log_to_stderr()
    run_actuators(Settings.load(os.environ, overrides))


@pacehound.command()
@click.option("--ranks", type=click.IntRange(8), default=8, show_default=True, help="Ranks of a job, a multiple of 4.")
@click.option("--iterations", type=click.IntRange(120), default=600, show_default=True, help="Steps of a job.")
@click.option("--jobs", type=click.IntRange(0), default=1, show_default=True, help="How many, in turn; 0: without end.")
@click.option("--name", default="simulated", show_default=True, help="What the names of the jobs begin with.")
@click.option("--fast", is_flag=True, help="As fast as Kafka takes it, as if the job had just ended.")
@set_option
def simulate(ranks: int, iterations: int, jobs: int, name: str, fast: bool, overrides: tuple[str, ...]) -> None:
    """Put simulated training jobs on Kafka, in real time: a slow rank, a slow link, a healthy one, and so on.

    They look to the pipeline as jobs do whose hosts run an agent.
    """
    from itertools import count, islice

    from pacehound.bus.kafka import KafkaProducer
    from pacehound.bus.kafka_topics import ensure_topics
    from pacehound.engine.feed import feed
    from pacehound.engine.process import started, when_available
    from simulator.demo_load import demo_job
    from simulator.job import simulate as simulated

    log_to_stderr()
    if ranks % 4:
        raise InvalidInput(f"--ranks {ranks} is no multiple of 4")
    settings = Settings.load(os.environ, overrides)
    with started("simulate", settings) as process:
        if not when_available(process, lambda: ensure_topics(settings.kafka, timeout_s=10.0)):
            return
        producer = KafkaProducer(settings.kafka, "simulate")
        try:
            for number in islice(count(), jobs or None):
                start_s = process.clock.now_ns() // 10**9
                spec = demo_job(
                    number,
                    name=f"{name}-{start_s}-{number}",
                    ranks=ranks,
                    iterations=iterations,
                    start_unix_ns=start_s * 10**9,
                )
                simulation = simulated(spec)
                if fast:
                    duration_s = int(simulation.iteration_times_s.sum()) + 1
                    simulation = simulated(replace(spec, start_unix_ns=(start_s - duration_s) * 10**9))
                sent = feed(
                    simulation.events(),
                    producer,
                    process.clock,
                    process.pulse,
                    process.stopping,
                    is_paced=not fast,
                )
                producer.flush(60.0)
                click.echo(f"pacehound: {spec.job}: {sent} events", err=True)
                if process.stopping.is_set():
                    return
        finally:
            producer.close()


@pacehound.command()
@set_option
@json_option
def status(overrides: tuple[str, ...], as_json: bool) -> None:
    """Show the health of the pipeline: topics and lag from Kafka, and what its processes say (`telemetry.targets`)."""
    from pacehound.clock import SystemClock
    from pacehound.engine.status import status_answer
    from pacehound.engine.survey import print_status, survey
    from pacehound.report import terminal

    found = survey(Settings.load(os.environ, overrides), SystemClock())
    if as_json:
        print_json(status_answer(found))
    else:
        print_status(terminal(sys.stdout), found)


@pacehound.group(name="dead-letters")
def dead_letters() -> None:
    """See what could not be processed, and try it again.

    The letters are read from Kafka where kafka.servers is set, else from the store.
    """


@dead_letters.command(name="list")
@click.option("--topic", help="Only those of this topic.")
@store_option
@set_option
@json_option
def list_letters(topic: str | None, store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """List them, the oldest first."""
    from pacehound.clock import SystemClock
    from pacehound.engine.dead_letters import letters_answer, listed
    from pacehound.engine.letters_page import print_letters
    from pacehound.report import terminal

    with dead_letters_of(Settings.load(os.environ, overrides), store) as letters:
        found = [one for one in listed(letters()) if topic in (None, one.source_topic)]
    if as_json:
        print_json(letters_answer(found))
    else:
        print_letters(terminal(sys.stdout), found, SystemClock().now_ns())


@dead_letters.command(name="show")
@click.argument("letter_id", metavar="ID")
@store_option
@set_option
@json_option
def show_letter(letter_id: str, store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show everything about one; the beginning of its id is enough."""
    from pacehound.engine.dead_letters import chosen, letter_answer
    from pacehound.engine.letters_page import print_letter
    from pacehound.report import terminal

    with dead_letters_of(Settings.load(os.environ, overrides), store) as letters:
        found = chosen(letters, letter_id)
    if as_json:
        print_json({"schema": 1, "letters": [letter_answer(letter) for letter in found]})
    else:
        for letter in found:
            print_letter(terminal(sys.stdout), letter)


@dead_letters.command(name="replay")
@click.argument("letter_ids", metavar="[ID]…", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every one that has not been replayed.")
@set_option
@json_option
def replay_letters(letter_ids: tuple[str, ...], is_all: bool, overrides: tuple[str, ...], as_json: bool) -> None:
    """Put them on the topics that they came from again, and mark them as replayed. Needs Kafka."""
    from pacehound.bus.kafka import KafkaProducer
    from pacehound.clock import SystemClock
    from pacehound.engine.dead_letters import kafka_letters, letters_answer
    from pacehound.engine.dead_letters import replay as replay_dead_letters

    if bool(letter_ids) == is_all:
        raise InvalidInput("say which: the beginnings of their ids, or --all")
    kafka = Settings.load(os.environ, overrides).kafka
    producer = KafkaProducer(kafka, "dead-letters")
    try:
        done = replay_dead_letters(
            lambda: kafka_letters(kafka), letter_ids, is_all, producer, now_ns=SystemClock().now_ns()
        )
    finally:
        producer.close()
    if as_json:
        print_json(letters_answer(done))
    else:
        click.echo(f"replayed {len(done)} dead letter{'' if len(done) == 1 else 's'}")


@contextmanager
def dead_letters_of(settings: Settings, store: Path) -> Iterator[Callable[[], Iterable[DeadLetter]]]:
    """Where they are: on Kafka, else in the store."""
    from pacehound.engine.dead_letters import STORED_LETTERS, kafka_letters, stored_letters

    if settings.kafka.servers:
        yield lambda: kafka_letters(settings.kafka)
        return
    from pacehound.history import history

    with history(store) as answers:
        yield lambda: stored_letters(answers.sql(STORED_LETTERS))


@pacehound.command()
@json_option
def version(as_json: bool) -> None:
    """Print the version."""
    if as_json:
        print_json({"schema": 1, "version": __version__})
    else:
        click.echo(__version__)


def log_to_stderr() -> None:
    """Our own events; of the libraries only what is wrong."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    for name in ("pacehound", *SIBLINGS):
        logging.getLogger(name).setLevel(logging.INFO)


def main() -> None:
    """Start of the `pacehound` command."""
    prefer_ours()
    pacehound(prog_name="pacehound")
