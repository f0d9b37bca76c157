"""Which hosts of a job are heard: heartbeats count when they come, the rest when the time of the job has come to it."""

from __future__ import annotations

from pacehound.model.events import HostSample, Progress, Watermark
from pacehound.model.routing import host_stream
from pacehound.settings import Settings
from streams.job.hosts import JobHosts
from streams.job.operator import JobOperator
from tests.fakes.events import topology

S = 1_000_000_000
LATENESS_NS = 5 * S


def sample(time_s: int) -> HostSample:
    return HostSample(job="j", attempt=0, time_ns=time_s * S, host="h", processes=())


def test_a_host_whose_heart_beats_is_not_silent_whatever_is_heard_of_it_later() -> None:
    hosts = JobHosts(LATENESS_NS)
    hosts.expect(topology())
    hosts.on_sample(sample(1))
    assert hosts.silent_since_ns(9 * S) == {"h": S}
    hosts.is_unchanged("h", 8 * S)
    hosts.on_sample(sample(3))
    assert hosts.silent_since_ns(9 * S) == {}
    assert hosts.silent_since_ns(14 * S) == {"h": 8 * S}


def test_a_heartbeat_ends_the_patience_with_a_silent_host() -> None:
    hosts = JobHosts(LATENESS_NS)
    for second in range(3_000):
        assert not hosts.ticks_silently("h", second * S)
    hosts.is_unchanged("h", 3_000 * S)
    assert not hosts.ticks_silently("h", 3_601 * S)
    assert hosts.given_up == frozenset()


def test_a_heartbeat_lets_a_jobs_time_go_on_and_a_sample_that_comes_later_counts_from_there() -> None:
    operator = JobOperator("j", 0, Settings())
    operator.on_stage_one(topology())
    stream = host_stream("j", "h")
    for name in (topology().communicator, stream):
        operator.on_stage_one(Watermark(job="j", attempt=0, time_ns=20 * S, stream=name))
    assert operator.hosts == ("h",)
    assert operator.on_host(sample(10)) == []
    operator.on_stage_one(Watermark(job="j", attempt=0, time_ns=5 * S, stream=host_stream("j", "nobody knows")))
    assert operator._merge.watermark_ns == 20 * S


def test_what_a_host_says_last_of_what_it_has_lost_counts() -> None:
    hosts = JobHosts(LATENESS_NS)

    def unseen(host: str, dropped: int, skipped: int) -> tuple[str, ...]:
        hosts.on_progress(
            Progress(
                job="j",
                attempt=0,
                time_ns=S,
                host=host,
                communicator="world",
                ranks=(),
                dropped_total=dropped,
                skipped_rounds=skipped,
            )
        )
        return hosts.unseen({}, {})

    rounds = "{} rounds of world were told of by nobody; it was begun anew behind them"
    assert unseen("a", 0, 0) == ()
    assert unseen("a", 3, 2) == ("3 calls were lost before they could be read", rounds.format(2))
    assert unseen("b", 4, 5) == ("7 calls were lost before they could be read", rounds.format(5))
    assert unseen("a", 0, 5) == ("4 calls were lost before they could be read", rounds.format(5))
    assert unseen("b", 0, 0) == ()
    hosts._skipped["world"] = 0  # states of before have it
    assert hosts.unseen({}, {}) == ()
