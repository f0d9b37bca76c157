"""The files for Docker hold together: no Docker runs here, so they are read."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from alerts.notice import Notice
from alerts.sinks.alertmanager import alert_of
from pacehound import cli
from pacehound.settings import ENVIRONMENT_PREFIX, known_keys
from tests.fakes.events import incident

ROOT = Path(__file__).resolve().parents[3]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = sorted(name for name, service in SERVICES.items() if service["image"].startswith("pacehound:"))
ONE_SHOT = {"topics"}
VARIABLE = re.compile(r"\$\{([A-Z_]+)(?:(:[-?])([^}]*))?\}")

service = pytest.mark.parametrize("name", sorted(SERVICES))
own_service = pytest.mark.parametrize("name", OURS)


def texts(node: Any) -> list[str]:
    """Every text of a file, keys included."""
    if isinstance(node, dict):
        return [text for pair in node.items() for one in pair for text in texts(one)]
    if isinstance(node, list):
        return [text for one in node for text in texts(one)]
    return [str(node)]


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's, with continued lines joined and comments left out."""
    lines = [line for line in DOCKERFILE.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [
        (word, rest.strip()) for word, _, rest in (line.strip().partition(" ") for line in joined.splitlines()) if word
    ]


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage; what stands before the first is for all of them."""
    found: list[list[tuple[str, str]]] = []
    for word, rest in instructions():
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, rest))
    return found


def test_everything_that_the_pipeline_needs_is_there() -> None:
    needed = {"kafka", "clickhouse", "grafana", "alertmanager", "prometheus", "topics", "streams", "writer", "alerts"}
    assert needed | {"actuators", "demo", "traces", "jaeger", "page"} == set(SERVICES)


@own_service
def test_the_command_of_a_service_exists_and_takes_its_options(name: str) -> None:
    words = [str(word) for word in SERVICES[name]["command"]]
    command = cli.pacehound.get_command(click.Context(cli.pacehound), words[0])
    assert isinstance(command, click.Command), f"pacehound {words[0]}"
    assert not command.hidden
    with command.make_context(words[0], words[1:]):
        pass


@own_service
def test_every_variable_of_ours_is_a_setting_and_fits(name: str) -> None:
    from pacehound.settings import Settings

    environment = {key: str(value) for key, value in SERVICES[name]["environment"].items()}
    known = {ENVIRONMENT_PREFIX + key.replace(".", "_").upper() for key in known_keys()}
    assert set(environment) <= known
    settings = Settings.load({key: VARIABLE.sub("7", value) for key, value in environment.items()})
    assert settings.kafka.servers == "kafka:9092"
    assert settings.telemetry.listen.endswith(":9464")


@service
def test_every_image_has_a_version_and_ours_is_this_one(name: str) -> None:
    image, _, tag = SERVICES[name]["image"].partition(":")
    assert re.match(r"v?\d+\.\d+", tag), SERVICES[name]["image"]
    if image == "pacehound":
        assert tag == PROJECT["project"]["version"]
        assert SERVICES[name]["build"] == "."


def test_the_server_is_of_the_release_that_the_tests_run_against() -> None:
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    (release,) = re.findall(r"^chdb-core==(\d+\.\d+)\.", constraints, re.MULTILINE)
    assert SERVICES["clickhouse"]["image"].endswith(f":{release}")
    pom = (ROOT / "tests/kafka/pom.xml").read_text(encoding="utf-8")
    minor = SERVICES["kafka"]["image"].partition(":")[2].rpartition(".")[0]
    assert f"<version>{minor}." in pom


@service
def test_a_service_has_a_health_check_or_ends_by_itself(name: str) -> None:
    check = SERVICES[name].get("healthcheck")
    if name in ONE_SHOT:
        assert check is None
        assert SERVICES[name]["restart"] == "on-failure"
        return
    assert check is not None
    assert {"test", "interval", "timeout", "retries", "start_period"} <= set(check)
    if name in OURS:
        port = SERVICES[name]["environment"]["PACEHOUND_TELEMETRY_LISTEN"].rpartition(":")[2]
        code = check["test"][-1]
        assert f":{port}/health" in code
        compile(code, name, "exec")


@service
def test_a_service_has_a_memory_limit_and_begins_again(name: str) -> None:
    assert re.fullmatch(r"\d+[mg]", SERVICES[name]["mem_limit"])
    assert SERVICES[name]["restart"] in ("unless-stopped", "on-failure")
    assert SERVICES[name]["logging"]["options"]["max-size"]


@own_service
def test_what_is_ours_runs_with_no_rights(name: str) -> None:
    own = SERVICES[name]
    (uid,) = re.findall(r"--uid (\d+)", DOCKERFILE)
    assert own["user"] == f"{uid}:{uid}" != "0:0"
    assert own["read_only"] is True
    assert own["working_dir"] in own["tmpfs"]
    assert own["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in own["security_opt"]


@service
def test_who_is_needed_first_is_there_and_can_say_that_it_is_ready(name: str) -> None:
    for needed, how in SERVICES[name].get("depends_on", {}).items():
        if how["condition"] == "service_completed_successfully":
            assert needed in ONE_SHOT
        else:
            assert how["condition"] == "service_healthy"
            assert "healthcheck" in SERVICES[needed]
    if name in OURS and name not in ONE_SHOT:
        assert {"kafka", "topics"} <= set(SERVICES[name]["depends_on"])


@service
def test_every_mounted_file_is_in_the_repository_and_every_volume_is_declared(name: str) -> None:
    for mount in SERVICES[name].get("volumes", []):
        source, _, _ = mount.partition(":")
        if source.startswith("."):
            assert (ROOT / source).exists(), source
            assert mount.endswith(":ro"), mount
        else:
            assert source in COMPOSE["volumes"], source


def test_every_process_of_ours_that_stays_is_scraped_and_somebody_wakes_when_it_is_gone() -> None:
    scraped = yaml.safe_load((ROOT / "docker/prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    stays = set(OURS) - ONE_SHOT - {"demo"}
    assert {job["job_name"] for job in scraped} == stays
    rules = (ROOT / "docker/prometheus-rules.yml").read_text(encoding="utf-8")
    (gone,) = re.findall(r'up\{job=~"([a-z|]+)"\} == 0', rules)
    assert set(gone.split("|")) == stays


def test_hosts_that_are_named_in_settings_are_services() -> None:
    for name in OURS:
        for value in SERVICES[name]["environment"].values():
            for host in re.findall(r"(?:^|//)([a-z]+):\d+", str(value)):
                assert host in SERVICES


def test_nobody_reaches_kafka_without_a_login_and_who_is_granted_nothing_may_do_nothing() -> None:
    """What a broker does with these settings: tests/integration/test_kafka_security.py."""
    broker = SERVICES["kafka"]["environment"]
    doors = dict(door.split(":") for door in broker["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    assert doors == dict.fromkeys(("INSIDE", "OUTSIDE", "CONTROLLER"), "SASL_PLAINTEXT")
    for door in doors:
        logins = broker[f"KAFKA_LISTENER_NAME_{door}_PLAIN_SASL_JAAS_CONFIG"]
        assert ("user_agent=" in logins) == (door != "CONTROLLER")
    assert broker["KAFKA_AUTHORIZER_CLASS_NAME"].endswith(".StandardAuthorizer")
    assert broker["KAFKA_SUPER_USERS"] == "User:pacehound"
    assert "KAFKA_ALLOW_EVERYONE_IF_NO_ACL_FOUND" not in broker
    assert SERVICES["topics"]["command"] == ["topics", "--agents", "agent"]


@own_service
def test_what_is_ours_logs_in(name: str) -> None:
    (config,) = SERVICES[name]["configs"]
    assert SERVICES[name]["environment"]["PACEHOUND_KAFKA_CLIENT_FILE"] == f"/{config}"
    lines = dict(line.split("=", 1) for line in COMPOSE["configs"][config]["content"].splitlines())
    assert lines["security.protocol"] == "SASL_PLAINTEXT"
    assert lines["sasl.username"] == "pacehound"
    assert VARIABLE.fullmatch(lines["sasl.password"])


def test_no_secret_stands_in_the_files_and_the_example_names_every_variable() -> None:
    used = {found[0]: found[1] for text in texts(COMPOSE) for found in VARIABLE.findall(text)}
    example = dict(
        line.split("=", 1)
        for line in (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    )
    assert set(example) == set(used)
    for name, how in used.items():
        if "PASSWORD" in name:
            assert how == ":?", f"{name} has a default"
            assert example[name] == ""
    for name in SERVICES:
        for key, value in (SERVICES[name].get("environment") or {}).items():
            if "PASSWORD" in key or "TOKEN" in key:
                assert VARIABLE.fullmatch(value), f"{name} {key}"
    assert "/.env" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_ports_are_open_to_this_machine_alone_unless_somebody_says_otherwise() -> None:
    for name in SERVICES:
        for port in SERVICES[name].get("ports", []):
            assert port.startswith("${LISTEN_ADDRESS:-127.0.0.1}:"), (name, port)


def test_the_image_copies_what_is_there_and_installs_extras_that_are_there() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = []
    for word, rest in instructions():
        if word == "COPY":
            *sources, _ = [part for part in shlex.split(rest) if not part.startswith("--")]
            for source in sources:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in ignored, source
            copied += sources
    assert ("ARG", "EXTRAS=engine") in instructions()
    installed = [rest for word, rest in instructions() if word == "RUN" and "[$EXTRAS]" in rest]
    assert len(installed) == sum(("ARG", "EXTRAS") in stage for stage in stages()) == 2
    named = set(re.findall(r"EXTRAS=([a-z,]+)", DOCKERFILE))
    assert {one for extras in named for one in extras.split(",")} <= set(PROJECT["project"]["optional-dependencies"])
    tops = {package.partition(".")[0] for package in PROJECT["tool"]["setuptools"]["packages"]}
    assert tops <= set(copied)
    project = PROJECT["project"]
    assert {"pyproject.toml", "setup.py", project["readme"], *project["license-files"]} <= set(copied)


def test_what_is_installed_is_enough_for_every_process_of_the_engine() -> None:
    extra = {re.split(r"[><=\[]", one)[0] for one in PROJECT["project"]["optional-dependencies"]["engine"]}
    assert {"clickhouse-connect", "confluent-kafka", "faust-streaming", "httpx", "opentelemetry-sdk"} <= extra
    assert "chdb" not in extra


def test_the_last_stage_has_no_compiler_and_no_root() -> None:
    *_, last = stages()
    assert len(stages()) == 2
    installs = " ".join(rest for word, rest in last if word == "RUN")
    assert not re.search(r"apt-get|apk |g\+\+|gcc|build-essential", installs)
    users = [rest for word, rest in last if word == "USER"]
    assert users
    assert not users[-1].startswith(("0", "root"))
    assert ("ENTRYPOINT", '["pacehound"]') in last
    assert all(re.search(r":\d+\.\d+", rest) for word, rest in instructions() if word == "FROM")


def test_the_other_files_are_yaml_that_says_what_it_should() -> None:
    sources = yaml.safe_load((ROOT / "grafana/provisioning/datasources/clickhouse.yml").read_text(encoding="utf-8"))
    (source,) = sources["datasources"]
    assert source["type"] == SERVICES["grafana"]["environment"]["GF_PLUGINS_PREINSTALL"]
    assert source["jsonData"]["host"] in SERVICES
    variable = source["secureJsonData"]["password"].removeprefix("$")
    assert variable in SERVICES["grafana"]["environment"]
    manager = yaml.safe_load((ROOT / "docker/alertmanager.yml").read_text(encoding="utf-8"))
    assert manager["route"]["receiver"] in {receiver["name"] for receiver in manager["receivers"]}
    labels = alert_of(Notice(incident=incident()))["labels"]
    assert set(manager["route"]["group_by"]) <= set(labels)
