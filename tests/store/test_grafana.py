"""Every query of a dashboard runs over a month of 200 jobs and says what truly was; their JSON is that of the code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
import yaml

from grafana.health import SERIES
from grafana.written import FOLDER, written
from pacehound.runtime.metric_names import METRICS
from simulator.suites.month import MonthIncident, MonthJob
from storage.client import Store
from storage.named_queries import query_names
from storage.read import ask
from tests.fakes.month_store import MONTH

ROOT = Path(__file__).resolve().parents[2]
SPAN = {"since_ns": MONTH.start_ns, "until_ns": MONTH.end_ns}
CASES = [(job, one) for job in MONTH.jobs for one in job.incidents]
JOB, CASE = next((job, one) for job, one in CASES if len(job.incidents) > 1 and one.action and one.told_ns)
INTERVAL_S = 3600
Row = dict[str, Any]


@pytest.fixture(scope="module")
def month(month_folder: Path) -> Iterator[Store]:
    with Store.open(month_folder) as store:
        yield store


@pytest.fixture(scope="module")
def answers(month: Store) -> list[pa.Table]:
    """Of every question about a fleet."""
    return [ask(month, name, **SPAN) for name in query_names("fleet")]


def dashboard(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def filled_in(sql: str, job: str = JOB.job, incident: str = CASE.id) -> str:
    """As Grafana and its plugin do it."""
    for macro, value in {
        "$__fromTime": f"toDateTime({MONTH.start_ns // 10**9})",
        "$__toTime": f"toDateTime({MONTH.end_ns // 10**9})",
        "$__interval_s": str(INTERVAL_S),
        "${job:raw}": job.encode().hex().upper(),
        "${attempt:raw}": "0",
        "${incident:raw}": incident.encode().hex().upper(),
    }.items():
        sql = sql.replace(macro, value)
    assert "$" not in sql, sql
    return sql


def panels(name: str) -> dict[str, str]:
    """The SQL of each panel."""
    return {
        panel["title"]: target["rawSql"]
        for panel in dashboard(name)["panels"]
        for target in panel["targets"]
        if "rawSql" in target
    }


def rows(store: Store, sql: str, **values: str) -> list[Row]:
    found: list[Row] = store.query(filled_in(sql, **values)).to_pylist()
    return found


def test_the_committed_json_is_that_of_the_code() -> None:
    assert {path: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")} == written(), (
        "write it anew: python -m grafana"
    )


@pytest.mark.parametrize("panel", sorted(panels("fleet")))
def test_a_panel_of_the_fleet_answers_as_its_query_which_the_truth_confirms(
    month: Store, answers: list[pa.Table], panel: str
) -> None:
    """The queries themselves are held against the month in test_fleet_queries."""
    found = month.query(filled_in(panels("fleet")[panel]))
    if panel == "Incidents":
        assert {row["id"] for row in found.to_pylist()} == {one.id for _, one in CASES}
        return
    (same,) = [one for one in answers if one.column_names == found.column_names]
    assert found.num_rows == same.num_rows > 0
    moments = [name for name in found.column_names if found.schema.field(name).type != same.schema.field(name).type]
    assert found.drop_columns(moments).equals(same.drop_columns(moments))
    for name in moments:
        assert [at.value for at in found.column(name)] == same.column(name).to_pylist()


def test_the_panels_of_a_job_say_what_happened_to_it(month: Store) -> None:
    found = panels("job")
    times = rows(month, found["Iteration times"])
    usual = [row["median_s"] for row in times]
    assert len(times) > 5
    assert min(usual) == pytest.approx(JOB.step_time_s, rel=0.05)
    assert max(row["longest_s"] for row in times) > JOB.step_time_s * 1.1
    assert {row["id"] for row in rows(month, found["Incidents"])} == {one.id for one in JOB.incidents}
    taken = {row["incident"]: row["action"] for row in rows(month, found["Decisions"]) if row["taken"]}
    assert taken == {one.id: one.action.name for one in JOB.incidents if one.action is not None}


def test_the_panels_of_an_incident_say_what_is_known_of_it(month: Store) -> None:
    found = panels("incident")
    known = rows(month, found["What is known"])
    assert {row["kind"] for row in known} == {CASE.kind}
    assert {tuple(row["culprits"]) for row in known} == {CASE.culprits}
    crowded = next(one for _, one in CASES if one.reason == "CPU contention")
    assert "processor" in rows(month, found["What is known"], incident=crowded.id)[0]["evidence"]
    said = rows(month, found["What was said"])
    assert said[0]["state"] == "open"
    assert said[-1]["lost_s"] == pytest.approx(CASE.lost_s)
    told = {row["state"]: row["sent_ns"] for row in rows(month, found["Who was told"])}
    assert told["open"].value == CASE.told_ns
    assert [row["action"] for row in rows(month, found["Decisions"]) if row["taken"]] == [CASE.action.name]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["fleet", "job", "incident", "health"])
def test_annotations_are_the_incidents_from_onset_to_end(month: Store, name: str) -> None:
    (annotation,) = dashboard(name)["annotations"]["list"]
    found = {(row["time"].value, row["timeEnd"].value) for row in rows(month, annotation["target"]["rawSql"])}
    cases = JOB.incidents if name == "job" else [one for _, one in CASES]
    assert found == {(one.onset_ns, ended_ns(one)) for one in cases}


def ended_ns(one: MonthIncident) -> int:
    return MONTH.end_ns if one.end_ns is None else one.end_ns


def test_variables_offer_what_there_is_in_digits_that_no_quote_can_end(month: Store) -> None:
    def offered(board: str, variable: str) -> list[Row]:
        (found,) = [one for one in dashboard(board)["templating"]["list"] if one["name"] == variable]
        return rows(month, found["query"])

    jobs: list[MonthJob] = list(MONTH.jobs)
    assert {(row["__text"], bytes.fromhex(row["__value"]).decode()) for row in offered("job", "job")} == {
        (job.job, job.job) for job in jobs
    }
    assert [row["attempt"] for row in offered("job", "attempt")] == [0]
    assert {bytes.fromhex(row["__value"]).decode() for row in offered("incident", "incident")} == {
        one.id for _, one in CASES
    }


def test_nothing_that_somebody_has_named_is_in_sql_but_as_digits() -> None:
    for path in FOLDER.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        for sql in re.findall(r'"(?:rawSql|query)": "((?:[^"\\]|\\.)*)"', text):
            for variable in re.findall(r"'\$\{(\w+)[^}]*\}'", sql):
                assert re.search(rf"(?:unhex|toInt32OrZero)\('\$\{{{variable}:raw\}}'\)", sql), (path.name, variable)


def test_links_lead_to_the_page() -> None:
    paths = set()
    for path in FOLDER.glob("*.json"):
        paths |= set(re.findall(r"\$\{page_url\}/(#/\w+)/\$\{__value\.text:percentencode\}", path.read_text()))
    assert {unquote(one) for one in paths} == {"#/job", "#/incident"}


def test_panels_and_rules_of_the_pipeline_name_metrics_that_there_are() -> None:
    known = {metric.name for metric in METRICS}
    rules = yaml.safe_load((ROOT / "docker/prometheus-rules.yml").read_text(encoding="utf-8"))
    entries = [rule for group in rules["groups"] for rule in group["rules"]]
    recorded = {rule["record"] for rule in entries if "record" in rule}
    texts = [rule["expr"] for rule in entries] + [one.promql for one in SERIES]
    for text in texts:
        for named in re.findall(r"(?:job:)?pacehound_\w+(?::\w+)?", text):
            assert named in known | recorded, named
    for rule in entries:
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("page", "ticket")
            assert {"summary", "description"} <= set(rule["annotations"])


def test_what_is_provisioned_is_what_the_compose_file_mounts() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    scraped = yaml.safe_load((ROOT / "docker/prometheus.yml").read_text(encoding="utf-8"))
    assert {job["job_name"] for job in scraped["scrape_configs"]} <= set(compose)
    mounted = [volume.split(":")[:2] for volume in compose["prometheus"]["volumes"] if volume.startswith("./")]
    assert all((ROOT / source).exists() for source, _ in mounted)
    assert set(scraped["rule_files"]) <= {target for _, target in mounted}
    provider = yaml.safe_load((FOLDER / "pacehound.yml").read_text(encoding="utf-8"))["providers"][0]
    assert "./grafana/provisioning:/etc/grafana/provisioning:ro" in compose["grafana"]["volumes"]
    assert provider["options"]["path"] == "/etc/grafana/provisioning/dashboards"
    sources = {
        source["uid"]
        for path in (FOLDER.parent / "datasources").glob("*.yml")
        for source in yaml.safe_load(path.read_text(encoding="utf-8"))["datasources"]
    }
    used = set(re.findall(r'"uid": "(pacehound[\w-]*)"', "".join(path.read_text() for path in FOLDER.glob("*.json"))))
    assert used - {f"pacehound-{path.stem}" for path in FOLDER.glob("*.json")} <= sources
