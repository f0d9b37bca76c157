"""Every setting, with its unit in its name; built once, from the environment and `--set KEY=VALUE`, and passed down."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pacehound.errors import InvalidSetting, nearest

ENVIRONMENT_PREFIX = "PACEHOUND_"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """Which host this is."""

    name: str = ""
    """Empty: the machine's own name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangSettings:
    """When a call that does not end, or a job that does not go on, is a hang."""

    suspect_after_s: float = 30.0
    """Snapshot the evidence and say `suspected`; never before 10 iterations' time."""
    page_after_s: float = 300.0
    """Wake somebody; never later than half of the smallest process-group timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowSettings:
    """When iterations are slow (Falcon 4.2)."""

    min_change: float = 0.10
    """Mean before and after must differ by this much, else it is jitter."""
    base_times: str = ""
    """What rounds usually take, in seconds, as in `all_reduce:67108864=0.012,all_gather:1048576=0.002` (operation and
    bytes): they are held against it from the first one on (CCL-D's T_base). Empty: against what the fleet's history
    says of that operation, size and kind of host, and then against their own first two minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentSettings:
    """When slowness is worth a person's attention; what is less stays a finding, and is counted."""

    min_duration_s: float = 3.0
    """It has lasted so long; besides the iterations that it takes to be sure, which are fewer seconds the shorter they
    are."""
    min_loss: float = 0.02
    """And this share of the time since it began was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """Event time and its watermarks."""

    lateness_s: float = 5.0
    """How long a silent host or a late row is waited for, in event time."""
    tick_s: float = 1.0
    """Operators are told the time at fixed multiples of this."""


class MessageForm(StrEnum):
    """How an agent says what its host's calls are."""

    TOGETHER = "together"
    APART = "apart"

    @classmethod
    def _missing_(cls, value: object) -> MessageForm:
        raise ValueError("write together or apart")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The daemon on a training host."""

    poll_s: float = 0.05
    """How often the rings are read."""
    flush_s: float = 1.0
    """Batches are cut after this at the latest, and progress is sent this often; where iterations are told, when one is
    over, this often at most."""
    max_backlog_bytes: int = 64 * 1024 * 1024
    """Held while the head node or Kafka is away; beyond it the oldest calls are dropped and counted."""
    cpu_budget_cores: float = 0.2
    """Where the agent takes more than this over ten seconds, it flushes less often, down to every `lateness_s / 2`;
    where that is not enough, one rank of a host tells of small calls that all its ranks made alike."""
    digests_from_ranks: int = 0
    """Jobs with so many ranks are told of by iterations instead of calls, once their optimizer steps are seen; 0: none.
    Agents keep their calls for two minutes, and tell them while somebody looks closer (docs/volume.md)."""
    calls_of_one_job_in: int = 0
    """One of so many such jobs, chosen by its name, has its calls told all the same; 0: none, 1: every one."""
    messages: MessageForm = MessageForm.TOGETHER
    """`together`: the calls of all ranks and communicators of a host in one message per flush. `apart`: one for each
    communicator, as agents of before 0025 send them, which workers of before read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsSettings:
    """Operations of training steps (forward, backward, send, receive), which the what-if analysis simulates."""

    every_steps: int = 25
    """One step in so many is recorded; 0: none. An operation of a recorded step costs 4 us of CPU, any other step 3 to
    9 us in all (docs/benchmarks.md): on average below 0.1 % of steps of 10 ms or more. On a GPU nothing is recorded
    by default, for that has not been measured on one yet: any other number asks for it."""
    window_steps: int = 8
    """So many of them in a row, and per analysis: 8 of every 200. Where 200 steps take less than eight seconds it is 8
    of 400, 800, …, so that windows begin eight seconds apart or more, unless `every_steps` is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Where Kafka is, for the processes that use it."""

    servers: str = ""
    """HOST:PORT of some brokers, separated by commas."""
    prefix: str = "pacehound."
    """What the names of all topics and consumer groups begin with, for a cluster that others use too."""
    client_file: str = ""
    """A file of librdkafka settings, a `key=value` per line: SASL, TLS. Empty: plain text."""
    replication: int = 1
    """Copies of each partition of the topics that are created; 3 where there are as many brokers."""


class Mode(StrEnum):
    """What is done by itself."""

    OBSERVE = "observe"
    APPROVE = "approve"
    AUTO = "auto"

    @classmethod
    def _missing_(cls, value: object) -> Mode:
        raise ValueError("write observe, approve or auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActuatorSettings:
    """The way back to the ranks."""

    mode: Mode = Mode.OBSERVE
    """`observe`: what would be done is recorded, and nothing is done. `auto`: what is due is done (docs/mitigation.md).
    `approve`: it is done once somebody has said yes (`pacehound approve`, or the link in the alert)."""

    modes: str = ""
    """Other modes by job and action, the first that fits: `pretrain-*:checkpoint_restart=approve,debug-*=observe`."""

    stop_command: str = ""
    """Stops a job, for a restart: words, with `{job}`, `{hosts}` (those to blame, with commas), `{incident}` and
    `{attempt}`, as in `scancel --signal=TERM {job}`. Run without a shell, where decisions are made."""

    start_command: str = ""
    """Starts it again without those hosts, under the same `--job`, as in `sbatch --exclude={hosts} job.sh`."""

    drain_command: str = ""
    """Takes those hosts out of service before, as in `kubectl cordon {hosts}`."""

    approval_key: str = field(default="", repr=False)
    """What the links in alerts are made with, where alerts and the page are other processes than a head: the same in
    both, 16 characters or more. A head has its own."""

    keys: str = ""
    """Public keys whose orders this host's agent obeys, 64 hexadecimal digits each, separated by commas; the head of a
    store on this machine is obeyed by its own agents without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySettings:
    """What calls do not show of a job whose recovery is priced (docs/recovery.md)."""

    model: str = ""
    """A name, or `layers=32,forward_ms=8,parameter_mb=400`, as `pacehound recover --model` takes it."""

    memory_gib: float = 0.0
    """Of a rank; 0: not known, and no plan is left out for it."""

    bandwidth_gb_s: float = 25.0
    """Between two ranks, in GB/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """Who is told, of what, and when (docs/alerts.md)."""

    webhook_url: str = field(default="", repr=False)
    """An incident is posted here as JSON, once per state; empty: nobody."""
    webhook_secret: str = field(default="", repr=False)
    """What those requests are signed with (HMAC-SHA256); empty: they are not."""
    alertmanager_url: str = field(default="", repr=False)
    """A Prometheus Alertmanager, as in `http://HOST:9093`."""
    pagerduty_key: str = field(default="", repr=False)
    """The integration key of a service of PagerDuty (Events API v2)."""
    pagerduty_url: str = "https://events.pagerduty.com/v2/enqueue"
    """Another one for accounts in the EU."""
    slack_url: str = field(default="", repr=False)
    """An incoming webhook of Slack."""
    smtp_url: str = field(default="", repr=False)
    """A mail server, as in `smtp://USER@HOST:587` (STARTTLS) or `smtps://USER@HOST` (TLS)."""
    smtp_password: str = field(default="", repr=False)
    """Of that user."""
    email_from: str = ""
    """Who the e-mails are from."""
    email_to: str = ""
    """Addresses, separated by commas."""
    heartbeat_url: str = field(default="", repr=False)
    """Posted to every minute while the pipeline is well; whoever waits there raises the alarm when that stops."""
    page_url: str = ""
    """Where the built-in page is, for links, as in `http://HOST:4319`."""
    page_lost_ranks: float = 1.0
    """From so many ranks' worth of lost work on, times the job's importance, somebody is woken; less is a ticket. With
    1 a job that is 10 % slower pages from 12 ranks on."""
    importance: str = ""
    """How much jobs matter, as in `pretrain-*=4,debug-*=0` (nobody is told of those with 0); 1 for any other."""
    tell_after_s: float = 0.0
    """What has been over before it lasted so long is told to nobody."""
    escalate_to: str = ""
    """Sinks, separated by commas, that are told only of what nobody acknowledges."""
    escalate_after_s: float = 900.0
    """So long after the others were told."""
    orders_file: str = ""
    """Where `pacehound alerts silence` and `acknowledge` write, and the process that tells people reads."""

    @property
    def tells_somebody(self) -> bool:
        """Whether any sink is set."""
        return bool(self.pagerduty_key or self.slack_url or self.smtp_url or self.webhook_url or self.alertmanager_url)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Where the history goes, how soon, and how long it is kept."""

    url: str = field(default="", repr=False)
    """A ClickHouse server, as in `https://HOST:8443/pacehound`; empty: the embedded engine, in this process."""
    user: str = ""
    """Who logs in there, where the URL does not say; empty: `default`."""
    password: str = field(default="", repr=False)
    """Better given by its variable than on a command line, which everybody on the host can read."""
    flush_s: float = 2.0
    """A message of a quiet partition is written after this at the latest, or after five times as long where hosts speak
    of themselves; a busy one fills its block sooner."""
    max_held_bytes: int = 256 * 1024 * 1024
    """Message bytes read and not yet written; beyond it the writer reads no more."""
    raw_calls_hours: int = 48
    """Every call of every rank, the largest table by far; and the operations of sampled steps."""
    host_days: int = 30
    """Samples of processes, GPUs and links, and markers."""
    window_days: int = 180
    """The calls around incidents, stacks and kernel logs."""
    rollup_days: int = 400
    """Calls per minute, iterations, topology."""
    dead_letter_days: int = 30
    """What could not be processed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """By what a head with `--listen` is known."""

    certificate_file: str = ""
    """Its certificate, with those between it and its CA (PEM); empty: one of its own, which the token names."""
    key_file: str = ""
    """The private key, without a passphrase (PEM); empty: it is in `certificate_file`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """What the processes say of themselves, and to whom."""

    listen: str = ""
    """HOST:PORT where Prometheus metrics and the health are served; empty: nowhere."""
    targets: str = ""
    """URLs of other processes' metrics, separated by commas, for `pacehound status`."""
    traces_endpoint: str = field(default="", repr=False)
    """Base URL of an OTLP/HTTP receiver of our own traces; empty: none are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """Rounds, incidents and decisions as OpenTelemetry traces (docs/traces.md)."""

    endpoint: str = field(default="", repr=False)
    """Base URL of an OTLP/HTTP receiver (Jaeger, Tempo, a Collector), as in `http://HOST:4318`; empty: none."""
    every_rounds: int = 1000
    """Besides those around incidents, one round in so many of each communicator; 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, by component.

    >>> Settings.load({"PACEHOUND_HANG_SUSPECT_AFTER_S": "4"}, ["host.name=node7"]).hang.suspect_after_s
    4.0
    """

    host: HostSettings = field(default_factory=HostSettings)
    hang: HangSettings = field(default_factory=HangSettings)
    slow: SlowSettings = field(default_factory=SlowSettings)
    incidents: IncidentSettings = field(default_factory=IncidentSettings)
    stream: StreamSettings = field(default_factory=StreamSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    ops: OpsSettings = field(default_factory=OpsSettings)
    traces: TraceSettings = field(default_factory=TraceSettings)
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    actuators: ActuatorSettings = field(default_factory=ActuatorSettings)
    recovery: RecoverySettings = field(default_factory=RecoverySettings)
    alerts: AlertSettings = field(default_factory=AlertSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)

    @classmethod
    def load(cls, environ: Mapping[str, str], overrides: Iterable[str] = ()) -> Settings:
        """Defaults, then `PACEHOUND_<COMPONENT>_<NAME>` of `environ`, then `component.name=value` of `overrides`.

        Raises
        ------
        InvalidSetting
            A key is unknown, a variable is misspelt, or a value does not fit.

        """
        keys = known_keys()
        _refuse_misspelt(environ, {_variable(key) for key in keys})
        texts: dict[str, str] = {}
        for key in keys:
            variable = _variable(key)
            if variable in environ:
                texts[key] = environ[variable]
        for override in overrides:
            key, separator, text = override.partition("=")
            if not separator:
                raise InvalidSetting(f"--set {override!r} has no '='; write KEY=VALUE, as in hang.suspect_after_s=10")
            if key not in keys:
                raise InvalidSetting(f"unknown setting {key!r}; {_instead(nearest(key, keys), keys)}")
            texts[key] = text
        components: dict[str, dict[str, Any]] = {}
        for key, text in texts.items():
            component, name = key.split(".")
            components.setdefault(component, {})[name] = _parse(key, text, keys[key])
        return dataclasses.replace(
            cls(), **{name: dataclasses.replace(getattr(cls(), name), **values) for name, values in components.items()}
        )

    def as_overrides(self) -> list[str]:
        """What differs from the defaults, as `key=value`, to hand to a process that this one starts.

        Passwords are among it, so not on its command line: everybody on the host can read that.
        """
        defaults = Settings()
        changed = []
        for key in known_keys():
            component, name = key.split(".")
            value = getattr(getattr(self, component), name)
            if value != getattr(getattr(defaults, component), name):
                changed.append(f"{key}={value}")
        return changed


def secret_variables() -> frozenset[str]:
    """The variables of settings that are a password, or a URL that may hold one: what has no `repr` above.

    >>> sorted(secret_variables())[-2:]
    ['PACEHOUND_TELEMETRY_TRACES_ENDPOINT', 'PACEHOUND_TRACES_ENDPOINT']
    """
    return frozenset(
        _variable(f"{component}.{one.name}")
        for component, kind in typing.get_type_hints(Settings).items()
        for one in dataclasses.fields(kind)
        if not one.repr
    )


def _variable(key: str) -> str:
    return ENVIRONMENT_PREFIX + key.replace(".", "_").upper()


def known_keys() -> dict[str, type]:
    """Every `component.name` and its type."""
    keys: dict[str, type] = {}
    for component, kind in typing.get_type_hints(Settings).items():
        for name, value_type in typing.get_type_hints(kind).items():
            keys[f"{component}.{name}"] = value_type
    return keys


_NO_SETTINGS = frozenset({"ATTEMPT", "JOB", "LAUNCHER", "NATIVE", "NCCL_KERNELS", "QUIET_OPS", "RUN_DIR", "TOKEN"})
"""Other variables of ours, without the prefix."""

_OF_A_SERVICE = re.compile(r"_SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?$|_PORT(_[0-9]+_[A-Z]+(_(PORT|PROTO|ADDR))?)?$")
"""Kubernetes sets such variables for each service: one may be called `pacehound-store`."""


def _refuse_misspelt(environ: Mapping[str, str], known: Iterable[str]) -> None:
    """A variable that begins as ours do and nearly is one, or is of one of our components, was meant to be one."""
    variables = sorted(known)
    components = tuple(f"{ENVIRONMENT_PREFIX}{one.name.upper()}_" for one in dataclasses.fields(Settings))
    for name in sorted(environ):
        if not name.startswith(ENVIRONMENT_PREFIX) or name in variables or _OF_A_SERVICE.search(name):
            continue
        if name.removeprefix(ENVIRONMENT_PREFIX) in _NO_SETTINGS:
            continue
        near = nearest(name, variables, likeness=0.85)
        if near or name.startswith(components):
            raise InvalidSetting(f"the variable {name} is no setting; {_instead(near, variables)}")


def _instead(near: str, known: Iterable[str]) -> str:
    return f"did you mean {near}?" if near else f"known are {', '.join(sorted(known))}"


_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


_MONTH_S, _CENTURY_HOURS, _CENTURY_DAYS = 30 * 86_400, 876_600, 36_525
_LIMITS: dict[str, tuple[Callable[[float], bool], str]] = {
    "min_change": (lambda value: 0 < value < 1, "more than 0 and less than 1 (0.10 is 10 %)"),
    "min_loss": (lambda value: 0 <= value <= 1, "at least 0 and at most 1 (0.02 is 2 %)"),
    "cpu_budget_cores": (lambda value: 0 < value <= 1_024, "more than 0 and at most 1,024"),
    "replication": (lambda value: 1 <= value <= 32_767, "at least 1 and at most 32,767"),
    "every_rounds": (lambda value: 0 <= value <= 2**31, "0 or more"),
    "every_steps": (lambda value: 0 <= value <= 2**31, "0 or more"),
    "window_steps": (lambda value: 0 < value <= 2**31, "more than 0"),
    "digests_from_ranks": (lambda value: 0 <= value <= 2**31, "0 (none) or more"),
    "calls_of_one_job_in": (lambda value: 0 <= value <= 2**31, "0 (none) or more"),
    "page_lost_ranks": (lambda value: 0 <= value <= 10_000_000, "at least 0 (everything wakes) and at most 10,000,000"),
    "memory_gib": (lambda value: 0 <= value <= 1_000_000, "at least 0 (not known) and at most 1,000,000 GiB"),
    "bandwidth_gb_s": (lambda value: 0 < value <= 1_000_000, "more than 0 and at most 1,000,000 GB/s"),
    "tell_after_s": (lambda value: 0 <= value <= 86_400, "at least 0 and at most 86,400 s (a day)"),
    "_s": (lambda value: 0 < value <= _MONTH_S, f"more than 0 and at most {_MONTH_S:,} s (30 days)"),
    "_bytes": (lambda value: 0 < value < 2**63, "more than 0"),
    "_hours": (lambda value: 0 < value <= _CENTURY_HOURS, f"more than 0 and at most {_CENTURY_HOURS:,} (100 years)"),
    "_days": (lambda value: 0 < value <= _CENTURY_DAYS, f"more than 0 and at most {_CENTURY_DAYS:,} (100 years)"),
}
"""By the end of the key: what a number has to be, and the words for it."""


def _parse(key: str, text: str, kind: type | types.UnionType) -> Any:
    try:
        if kind is bool:
            if text.lower() in _TRUE | _FALSE:
                return text.lower() in _TRUE
            raise ValueError("write true or false")
        value = typing.cast(type, kind)(text)
        if isinstance(value, (int, float)):
            fits, words = next(limits for end, limits in _LIMITS.items() if key.endswith(end))
            if not fits(value):
                raise ValueError(f"it must be {words}")
        return value
    except ValueError as error:
        raise InvalidSetting(f"setting {key}={text!r} does not fit: {error}") from error
