"""What is asked over a month of 200 jobs is answered as it truly was (the simulator's truth)."""

from __future__ import annotations

import datetime
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from simulator.suites.month import HOUR_NS, MonthIncident, MonthJob
from storage.client import Store
from storage.named_queries import named_query, query_about, query_names
from storage.read import ask
from tests.fakes.month_store import MONTH

Row = dict[str, Any]
CASES = [(job, one) for job in MONTH.jobs for one in job.incidents]


@pytest.fixture(scope="module")
def month(month_folder: Path) -> Iterator[Store]:
    with Store.open(month_folder) as store:
        yield store


def answered(store: Store, name: str, since_ns: int = MONTH.start_ns, until_ns: int = MONTH.end_ns) -> list[Row]:
    rows: list[Row] = ask(store, name, since_ns=since_ns, until_ns=until_ns).to_pylist()
    return rows


def cause(one: MonthIncident) -> str:
    return one.cause or "not named"


def rank_hours(job: MonthJob, one: MonthIncident) -> float:
    return one.lost_s * job.ranks / 3600


def gpu_hours(job: MonthJob, one: MonthIncident) -> float:
    return rank_hours(job, one) if job.is_on_gpus else 0.0


def date(time_ns: int) -> datetime.date:
    return datetime.datetime.fromtimestamp(time_ns // 10**9, datetime.UTC).date()


def duration_s(one: MonthIncident) -> float | None:
    return None if one.end_ns is None else (one.end_ns - one.onset_ns) / 1e9


def run_s(job: MonthJob) -> float:
    return (job.last_ns - job.first_ns) / 1e9


def delay(job: MonthJob, kinds: tuple[str, ...] = ("slow", "hang")) -> float:
    lost_s = sum(one.lost_s for one in job.incidents if one.kind in kinds)
    return lost_s / (run_s(job) - lost_s)


def level(values: list[float], share: float) -> float | None:
    """The engine's exact quantile."""
    return sorted(values)[int(share * len(values))] if values else None


def by(key: Callable[[MonthJob, MonthIncident], Any]) -> dict[Any, list[tuple[MonthJob, MonthIncident]]]:
    found = defaultdict(list)
    for job, one in CASES:
        found[key(job, one)].append((job, one))
    return dict(found)


def kinds_and_causes() -> dict[tuple[str, str], list[tuple[MonthJob, MonthIncident]]]:
    return by(lambda _, one: (one.kind, cause(one)))


def test_the_month_has_all_that_the_queries_are_about() -> None:
    assert len(MONTH.jobs) == 200
    assert {job.ranks for job in MONTH.jobs} == {16, 64, 256, 512, 1024, 2048}
    assert {one.reason for _, one in CASES} == {
        "network congestion", "CPU contention", "GPU degradation", "not named", "hang"
    }  # fmt: skip
    assert any(one.end_ns is None for _, one in CASES)
    assert any(len(one.episodes) > 1 for _, one in CASES)
    assert any(not one.is_over and one.end_ns for _, one in CASES)
    assert max(Counter(job.host(rank) for job, one in CASES for rank in one.culprits).values()) > 2


def test_incidents_by_month_kind_and_cause(month: Store) -> None:
    found = {(row["month"], row["kind"], row["cause"]): row for row in answered(month, "fleet/causes")}
    truth = by(lambda _, one: (date(one.opened_ns).replace(day=1), one.kind, cause(one)))
    assert set(found) == set(truth)
    for key, cases in truth.items():
        assert found[key]["incidents"] == len(cases)
        assert found[key]["runs"] == len({job.job for job, _ in cases})
        assert found[key]["lost_rank_hours"] == pytest.approx(sum(rank_hours(*case) for case in cases))
        assert found[key]["lost_gpu_hours"] == pytest.approx(sum(gpu_hours(*case) for case in cases))
    assert any(row["lost_gpu_hours"] < row["lost_rank_hours"] for row in found.values())


def test_falcons_table_1_jobs_by_scale_and_by_what_slowed_them_down(month: Store) -> None:
    def scale(job: MonthJob) -> str:
        return "9 to 63" if job.ranks < 64 else "64 to 511" if job.ranks < 512 else "512 and more"

    def reason(job: MonthJob) -> str:
        reasons = {one.reason for one in job.incidents if one.kind == "slow"}
        return "no fail-slow" if not reasons else "several" if len(reasons) > 1 else reasons.pop()

    truth: dict[tuple[str, str], list[MonthJob]] = defaultdict(list)
    for job in MONTH.jobs:
        truth[scale(job), reason(job)].append(job)
    of_scale = Counter(scale(job) for job in MONTH.jobs)
    rows = answered(month, "fleet/occurrence")
    assert {(row["scale"], row["reason"]): row["runs"] for row in rows} == {
        key: len(jobs) for key, jobs in truth.items()
    }
    assert list(dict.fromkeys(row["scale"] for row in rows)) == ["9 to 63", "64 to 511", "512 and more"]
    for row in rows:
        jobs = truth[row["scale"], row["reason"]]
        assert row["share"] == pytest.approx(len(jobs) / of_scale[row["scale"]])
        assert row["mean_delay"] == pytest.approx(mean(delay(job, ("slow",)) for job in jobs))


def test_how_often_incidents_are_per_run_and_per_hour_of_a_rank(month: Store) -> None:
    watched_h = sum(job.ranks * run_s(job) for job in MONTH.jobs) / 3600
    rows = answered(month, "fleet/rates")
    truth = kinds_and_causes()
    assert {(row["kind"], row["cause"]): row["incidents"] for row in rows} == {k: len(v) for k, v in truth.items()}
    for row in rows:
        assert row["per_run"] == pytest.approx(row["incidents"] / 200)
        assert row["per_1000_rank_hours"] == pytest.approx(row["incidents"] / watched_h * 1000)
        assert row["rank_hours_between"] == pytest.approx(watched_h / row["incidents"])


def test_how_long_incidents_last(month: Store) -> None:
    rows = {(row["kind"], row["cause"]): row for row in answered(month, "fleet/durations")}
    truth = kinds_and_causes()
    assert set(rows) == set(truth)
    for key, cases in truth.items():
        over = [length for _, one in cases if (length := duration_s(one)) is not None]
        assert (rows[key]["incidents"], rows[key]["go_on"]) == (len(over), len(cases) - len(over))
        assert rows[key]["mean_s"] == pytest.approx(mean(over))
        for share in (0.1, 0.25, 0.5, 0.75, 0.9, 0.99):
            assert rows[key][f"p{share * 100:.0f}_s"] == pytest.approx(level(over, share))


def test_falcons_figure_1_the_distribution_of_durations(month: Store) -> None:
    lengths = [length for _, one in CASES if one.kind == "slow" and (length := duration_s(one)) is not None]
    truth = Counter(2.0 ** math.floor(math.log2(length)) for length in lengths)
    rows = answered(month, "fleet/duration_histogram")
    assert {row["from_s"]: row["incidents"] for row in rows} == truth
    for row in rows:
        assert row["below_s"] == 2 * row["from_s"]
        assert row["share_shorter"] == pytest.approx(sum(s < row["below_s"] for s in lengths) / len(lengths))


def test_falcons_figure_1_by_how_much_jobs_were_delayed(month: Store) -> None:
    rows = answered(month, "fleet/delays")
    truth = {job.job: job for job in MONTH.jobs if job.incidents}
    assert {row["job"] for row in rows} == set(truth)
    assert [row["delay"] for row in rows] == sorted((row["delay"] for row in rows), reverse=True)
    for row in rows:
        job = truth[row["job"]]
        assert (row["world_size"], row["hosts"], row["incidents"]) == (job.ranks, len(job.hosts), len(job.incidents))
        assert row["run_s"] == pytest.approx(run_s(job))
        assert row["lost_s"] == pytest.approx(sum(one.lost_s for one in job.incidents))
        assert row["delay"] == pytest.approx(delay(job))


def test_hosts_that_come_back(month: Store) -> None:
    named, ends = Counter[str](), Counter[str]()
    for job, one in CASES:
        named.update(job.host(rank) for rank in one.culprits for _ in one.episodes)
        # Both ends of a link may be on one host: it is one finding even so.
        ends.update(host for link in one.links for host in {job.host(rank) for rank in link} for _ in one.episodes)
    rows = answered(month, "fleet/hosts")
    assert {row["host"]: (row["findings"], row["as_link_end"]) for row in rows} == {
        host: (named[host], ends[host]) for host in named | ends
    }
    assert [row["findings"] for row in rows] == sorted((row["findings"] for row in rows), reverse=True)


def test_cards_that_come_back(month: Store) -> None:
    truth = Counter(
        job.gpu(rank) for job, one in CASES if job.is_on_gpus for rank in one.culprits for _ in one.episodes
    )
    rows = answered(month, "fleet/gpus")
    assert {row["gpu"]: row["findings"] for row in rows} == truth
    assert rows[0]["findings"] == max(truth.values()) > 2
    assert all(row["gpu"].startswith(f"GPU-{row['host']}-") for row in rows)


def test_hours_lost_per_week_and_cause(month: Store) -> None:
    def week(_: MonthJob, one: MonthIncident) -> tuple[datetime.date, str]:
        day = date(one.opened_ns)
        return day - datetime.timedelta(days=day.weekday()), cause(one)

    truth = by(week)
    rows = {(row["week"], row["cause"]): row for row in answered(month, "fleet/losses")}
    assert set(rows) == set(truth)
    for key, cases in truth.items():
        assert rows[key]["incidents"] == len(cases)
        assert rows[key]["rank_hours"] == pytest.approx(sum(rank_hours(*case) for case in cases))
        assert rows[key]["gpu_hours"] == pytest.approx(sum(gpu_hours(*case) for case in cases))


def test_how_long_it_takes_to_notice_to_open_and_to_tell(month: Store) -> None:
    rows = {(row["kind"], row["cause"]): row for row in answered(month, "fleet/detection")}
    truth = kinds_and_causes()
    assert set(rows) == set(truth)
    for key, cases in truth.items():
        row = rows[key]
        noticed = [(one.detected_ns - one.onset_ns) / 1e9 for _, one in cases]
        opened = [(one.opened_ns - one.onset_ns) / 1e9 for _, one in cases]
        told = [(one.told_ns - one.onset_ns) / 1e9 for _, one in cases if one.told_ns]
        assert (row["incidents"], row["told"]) == (len(cases), len(told))
        assert row["noticed_p50_s"] == pytest.approx(level(noticed, 0.5))
        assert row["noticed_p90_s"] == pytest.approx(level(noticed, 0.9))
        assert row["noticed_most_s"] == pytest.approx(max(noticed))
        assert row["opened_p50_s"] == pytest.approx(level(opened, 0.5))
        assert row["told_p50_s"] == pytest.approx(level(told, 0.5))


def test_what_actions_did_to_the_iteration_time(month: Store) -> None:
    truth = {one.id: (job, one, one.action) for job, one in CASES if one.action is not None}
    rows = answered(month, "fleet/actions")
    assert {row["incident"] for row in rows} == set(truth)
    assert len(truth) > 20
    for row in rows:
        job, one, action = truth[row["incident"]]
        assert (row["job"], row["action"], row["acted_ns"]) == (job.job, action.name, action.acted_ns)
        assert row["usual_s"] == pytest.approx(job.step_time_s, rel=0.02)
        assert row["before_s"] == pytest.approx(job.step_time_s * (1 + (one.magnitude or 0.0)), rel=0.03)
        until_ns = one.end_ns
        relieved_after_s = None if until_ns is None else pytest.approx((until_ns - action.acted_ns) / 1e9)
        assert row["relieved_after_s"] == relieved_after_s
        if one.episodes[0][1] is None or one.episodes[0][1] - action.acted_ns >= HOUR_NS // 2:
            assert row["after_s"] == pytest.approx(job.step_time_s * (1 + action.magnitude), rel=0.02)


@pytest.mark.parametrize("name", query_names("fleet"))
def test_what_lies_outside_of_the_time_that_is_asked_for_is_left_out(month: Store, name: str) -> None:
    assert answered(month, name, 0, MONTH.start_ns) == []
    assert answered(month, name, MONTH.end_ns, 2**62) == []
    half_ns = (MONTH.start_ns + MONTH.end_ns) // 2
    assert len(answered(month, name, half_ns)) <= len(answered(month, name))


@pytest.mark.parametrize("name", query_names("fleet"))
def test_a_statistic_says_what_it_is_and_what_it_is_made_of(name: str) -> None:
    assert named_query(name).startswith("-- ")
    assert "\n-- Of: " in named_query(name)
    assert 20 < len(query_about(name)) < 200
