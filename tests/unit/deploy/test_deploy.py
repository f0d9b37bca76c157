"""What stands under `deploy/`: manifests fit Kubernetes' schemas, units fit systemd, and all commands are ours."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from pacehound import cli
from pacehound.launcher.job import given_name, part_of_job
from pacehound.settings import ENVIRONMENT_PREFIX, Settings

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").iterdir())
SCRIPTS = sorted((DEPLOY / "slurm").iterdir())
OF_OPERATORS = {"JobSet", "PyTorchJob"}
"""Kinds whose schemas come with their operators; what they hold is Kubernetes' own."""
TOKEN = "PACEHOUND_TOKEN"

manifest = pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
unit = pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
script = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Every object of a document."""
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from nodes(child)


def containers(path: Path) -> list[dict[str, Any]]:
    return [one for document in documents(path) for node in nodes(document) for one in node.get("containers", ())]


def pods(path: Path) -> list[dict[str, Any]]:
    return [node for document in documents(path) for node in nodes(document) if "containers" in node]


def takes(words: list[str]) -> None:
    """The command is one of ours, and takes its options."""
    command = cli.pacehound.get_command(click.Context(cli.pacehound), words[0])
    assert isinstance(command, click.Command), words
    assert not command.hidden
    with command.make_context(words[0], words[1:]):
        pass


@manifest
def test_a_manifest_fits_the_published_schemas(path: Path) -> None:
    latest = str(kubernetes_validate.latest_version())
    for document in documents(path):
        if document["kind"] not in OF_OPERATORS:
            kubernetes_validate.validate(document, latest, strict=True)
            continue
        templates = [
            node["template"] for node in nodes(document) if "containers" in node.get("template", {}).get("spec", {})
        ]
        assert templates
        for template in templates:
            pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "one"}, "template": template}
            kubernetes_validate.validate(pod, latest, strict=True)
        for job in (node["template"]["spec"] for node in nodes(document) if "replicas" in node and "template" in node):
            if "completions" in job:
                whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "one"}, "spec": job}
                kubernetes_validate.validate(whole, latest, strict=True)


@manifest
def test_what_a_manifest_runs_is_ours_and_takes_its_options(path: Path) -> None:
    for container in containers(path):
        words = container.get("command", ["pacehound"]) + container.get("args", [])
        assert words[0] == "pacehound"
        takes(words[1:])
        env = {one["name"]: one for one in container["env"]}
        given = {name: one["value"] for name, one in env.items() if "value" in one}
        ours = {name: "x" for name in env if name.startswith(ENVIRONMENT_PREFIX) and name != TOKEN}
        chosen = [word.removeprefix("--set=") for word in words if word.startswith("--set=")]
        Settings.load({**given, **ours}, chosen)
        assert "valueFrom" in env[TOKEN], "no token stands in a manifest"


@manifest
def test_what_is_mounted_is_there_and_no_key_goes_to_a_job(path: Path) -> None:
    for pod in pods(path):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = {mount["name"]: mount["mountPath"] for one in pod["containers"] for mount in one["volumeMounts"]}
        assert set(volumes) == set(mounts)
        if path.stem == "head":
            continue
        assert mounts["shm"] == "/dev/shm"
        (item,) = volumes["ca"]["secret"]["items"]
        env = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
        assert env["OTEL_EXPORTER_OTLP_CERTIFICATE"] == f"{mounts['ca']}/{item['path']}"
        assert env["OTEL_EXPORTER_OTLP_ENDPOINT"] == "https://pacehound:4318"


def test_jobs_find_the_head() -> None:
    service, deployment = (
        next(one for one in documents(DEPLOY / "kubernetes/head.yaml") if one["kind"] == kind)
        for kind in ("Service", "Deployment")
    )
    assert service["metadata"]["name"] == "pacehound"
    assert service["spec"]["ports"][0]["port"] == 4318
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


@unit
def test_a_unit_fits_systemd_and_runs_what_is_ours(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    program, *words = shlex.split(line)
    assert program == "/opt/pacehound/bin/pacehound"
    for name in ("streams", "writer", "alerts", "actuators") if "%i" in words else ("",):
        takes([word.replace("%i", name) for word in words])
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd is not installed: the unit was read, and not verified")
    there = tmp_path / path.name.replace("@", "@one")
    there.write_text(text.replace(program, "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(there)], capture_output=True, text=True, timeout=60)
    said = [one for one in done.stderr.splitlines() if path.stem.partition("@")[0] in one]
    assert (done.returncode, said) == (0, [])


@script
def test_a_script_of_slurm_is_bash_and_calls_what_is_ours(path: Path) -> None:
    subprocess.run(["bash", "-n", str(path)], check=True, timeout=10)
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^[^#\n]*\bpacehound (?:run|flush) .*$", text, re.MULTILINE):
        takes(shlex.split(line[line.index("pacehound ") :].partition("||")[0])[1:])


def test_each_node_of_a_slurm_job_runs_torchrun_under_the_name_of_the_job(tmp_path: Path) -> None:
    """`srun` stands in for Slurm's: it starts the command once per node, with what Slurm says to each."""
    stand_ins = {
        "scontrol": 'printf "node-a\\nnode-b\\n"',
        "srun": 'for node in 0 1; do SLURM_STEP_ID=0 SLURM_PROCID=$node "$@"; done',
        "pacehound": f'echo "$SLURM_PROCID" "$@" >> {tmp_path}/ran',
    }
    for name, does in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{does}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"SLURM_JOB_ID": "4711", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_GPUS_ON_NODE": "4"}
    environment = {**slurm, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(
        ["bash", str(DEPLOY / "slurm/train.sbatch"), "mine.py", "--lr", "3"], env=environment, check=True, timeout=10
    )
    ran = [shlex.split(line) for line in (tmp_path / "ran").read_text().splitlines()]
    assert [words[0] for words in ran] == ["0", "1"]
    for words in ran:
        takes(words[1:])
        assert words[-3:] == ["mine.py", "--lr", "3"]
        assert words[words.index("--rdzv-endpoint") + 1] == "node-a:29500"
        step = {**slurm, "SLURM_STEP_ID": "0", "SLURM_PROCID": words[0]}
        assert (given_name(None, step, words), part_of_job(step, words)) == ("4711.0", words[0])


def test_a_prolog_gives_the_token_and_never_fails_a_node(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret+sha256:ab\n")
    prolog = ["bash", str(DEPLOY / "slurm/task-prolog.sh")]
    for file, said in (("token", "export PACEHOUND_TOKEN=s3cret+sha256:ab\n"), ("nothing", "")):
        environment = {"PATH": os.environ["PATH"], "PACEHOUND_TOKEN_FILE": str(tmp_path / file)}
        done = subprocess.run(prolog, env=environment, capture_output=True, text=True, timeout=10)
        assert (done.returncode, done.stdout) == (0, said)
        epilog = ["bash", str(DEPLOY / "slurm/task-epilog.sh")]
        without = {**environment, "PATH": "/usr/bin:/bin"}
        assert subprocess.run(epilog, env=without, timeout=10).returncode == 0
