"""The health of the pipeline: pure, from what Kafka and the processes say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from prometheus_client.samples import Sample

from pacehound.bus.kafka_state import KafkaState
from pacehound.runtime.metric_names import AWAY, LAST_BATCH, MESSAGES, PROCESS, STORE_MESSAGES


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """One process as its metrics have it.

    Attributes
    ----------
    name, target
        What it says it is, and where it was asked.
    problem
        Why it is not well; empty when it is.
    rate_per_s
        Messages that it dealt with per second between the two scrapes.
    lag
        Messages of its partitions that it has not read.
    drops
        Messages or rows that it has given up, since it started.
    dead_letters
        Messages that it has set aside, since it started.
    batch_age_s
        Since its last batch; `None` before the first.

    """

    name: str
    target: str
    problem: str = ""
    page: str = ""
    rate_per_s: float = 0.0
    lag: int = 0
    drops: int = 0
    dead_letters: int = 0
    batch_age_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """What one process said at one moment; `problem` where it said nothing, or that it is ill."""

    target: str
    at_s: float
    samples: Sequence[Sample] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The whole pipeline; `kafka` is `None` where nobody answers, and `kafka_problem` says why."""

    kafka: KafkaState | None
    kafka_problem: str
    processes: tuple[ProcessState, ...]

    @property
    def problems(self) -> list[str]:
        """What is not as it should be, in sentences."""
        said = [self.kafka_problem] if self.kafka_problem else []
        if self.kafka is not None:
            said += [f"topic {topic.name} {topic.problem}" for topic in self.kafka.topics if topic.problem]
            said += [f"group {one.group}: {one.problem}" for one in self.kafka.groups if one.problem]
            said += [
                f"group {one.group} has no member and {one.lag} messages of {one.topic} before it"
                for one in self.kafka.groups
                if one.members == 0 and one.lag
            ]
        said += [f"{one.name} at {one.target}: {one.problem}" for one in self.processes if one.problem]
        said += [f"{one.name} at {one.target} has dropped {one.drops}" for one in self.processes if one.drops]
        return said


def process_state(first: Scrape, second: Scrape, now_unix_s: float) -> ProcessState:
    """What two scrapes of a process say.

    >>> first = Scrape(target="t", at_s=0.0, samples=[Sample("pacehound_messages_total", {}, 5)])
    >>> second = Scrape(target="t", at_s=2.0, samples=[Sample("pacehound_messages_total", {}, 9)])
    >>> process_state(first, second, now_unix_s=0).rate_per_s
    2.0
    """
    name = next((s.labels.get("process", "") for s in second.samples if s.name == PROCESS.name), "")
    if not second.samples:
        return ProcessState(name=name or "process", target=second.target, problem=second.problem or "says nothing")
    done = _messages(second) - _messages(first)
    took_s = second.at_s - first.at_s
    last_batch_s = _total(second, LAST_BATCH.name)
    return ProcessState(
        name=name or "process",
        target=second.target,
        problem=second.problem or _away(second),
        # One that has started again in between counts from 0.
        rate_per_s=max(done, 0.0) / took_s if took_s > 0 and first.samples else 0.0,
        lag=int(_sum(second, "_lag_messages")),
        drops=int(sum(s.value for s in second.samples if "_dropped_" in s.name and s.name.endswith("_total"))),
        dead_letters=int(_sum(second, "_dead_letters_total")),
        batch_age_s=max(now_unix_s - last_batch_s, 0.0) if last_batch_s else None,
    )


def head_state(url: str, answer: Mapping[str, Any]) -> ProcessState:
    """A head as its own `/status` has it.

    >>> head_state("http://h:1", {"health": {"problems": ["alerts waits: refused"], "not_stored_messages": 2}}).problem
    'alerts waits: refused'
    """
    health = answer.get("health", {})
    problem = "; ".join(health.get("problems", ()))
    page = str(answer.get("page", ""))
    not_stored = int(health.get("not_stored_messages", 0))
    return ProcessState(name="head", target=url, problem=problem, page=page, lag=not_stored)


def status_answer(status: Status) -> dict[str, Any]:
    """What `pacehound status --json` prints."""
    answer: dict[str, Any] = msgspec.to_builtins(status)
    return {"schema": 1, "is_well": not status.problems, "problems": status.problems} | answer


def _away(scraped: Scrape) -> str:
    waiting = [
        sample.labels.get("worker", "") for sample in scraped.samples if sample.name == AWAY.name and sample.value
    ]
    return f"{', '.join(waiting)} waits for something that does not answer; its log says for what" if waiting else ""


def _messages(scraped: Scrape) -> float:
    """What a process has dealt with; the writer counts what it has stored."""
    return _total(scraped, MESSAGES.name) + _total(scraped, STORE_MESSAGES.name)


def _sum(scraped: Scrape, ending: str) -> float:
    """Over all metrics of that ending: processes with a loop of their own have their own."""
    return sum(sample.value for sample in scraped.samples if sample.name.endswith(ending))


def _total(scraped: Scrape, name: str) -> float:
    return sum(sample.value for sample in scraped.samples if sample.name == name)


def targets_of(text: str) -> list[str]:
    """The addresses of `telemetry.targets`.

    >>> targets_of(" a:1, b:2,")
    ['a:1', 'b:2']
    """
    return [target for part in text.split(",") if (target := part.strip())]


def rows_of(status: Status) -> Iterable[tuple[str, ...]]:
    """The table: what, state, lag, rate, drops, dead letters, last batch."""
    if status.kafka is not None:
        for topic in status.kafka.topics:
            yield (f"topic {topic.name}", topic.problem or f"{topic.messages} messages", "", "", "", "", "")
        for one in status.kafka.groups:
            if one.problem:
                yield (f"group {one.group}", one.problem, "", "", "", "", "")
                continue
            members = f"{one.members} member" + ("" if one.members == 1 else "s")
            yield (f"group {one.group}", f"{one.topic}: {one.state}, {members}", f"{one.lag}", "", "", "", "")
    for process in status.processes:
        if process.problem and process.batch_age_s is None and not process.dead_letters:
            yield (process.name, process.problem, "", "", "", "", "")
            continue
        yield (
            process.name,
            process.problem or "well",
            f"{process.lag}",
            f"{process.rate_per_s:.1f}/s",
            f"{process.drops}",
            f"{process.dead_letters}",
            "none yet" if process.batch_age_s is None else f"{process.batch_age_s:.0f} s ago",
        )
