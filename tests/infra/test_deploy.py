"""The image, the compose file and the chart: read by the tools that will read them, where they are here.

`tests/tools.py` says how one gets the tools. Nothing is built or started: that takes Docker and a cluster.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from altneu.pipeline.home.settings_file import parse_settings
from tests import tools

REPO = Path(__file__).resolve().parents[2]
CHART = REPO / "infra/helm/altneu"
COMPOSE = REPO / "infra/compose.yaml"
KUBERNETES = "1.34.0"
VALUES = {
    "image": {"repository": "registry.example.com/altneu"},
    "home": {"claim": "altneu"},
    "secrets": {
        "token": {"name": "altneu-connect", "key": "token"},
        "environment": [{"variable": "AWS_SECRET_ACCESS_KEY", "name": "s3", "key": "secret"}],
        "driver": [{"variable": "PGPASSWORD", "name": "postgres", "key": "password"}],
    },
    "environment": {"AWS_REGION": "eu-central-1"},
}


def rendered(folder: Path, **changed: Any) -> list[dict[str, Any]]:
    """What the chart makes of its values, as Helm says it."""
    values = folder / "values.yaml"
    values.write_text(yaml.safe_dump({**VALUES, **changed}))
    command = [
        tools.require("helm"),
        "template",
        "mine",
        str(CHART),
        "--namespace",
        "graph",
        "--kube-version",
        KUBERNETES,
    ]
    done = subprocess.run([*command, "--values", str(values)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def pods(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The pods: that of the deployment, and the template of the executors."""
    for each in documents:
        if each["kind"] == "Deployment":
            yield each["spec"]["template"]
        if each["kind"] == "ConfigMap":
            yield yaml.safe_load(each["data"]["executor.yaml"])


def of(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in documents if each["kind"] == kind]


@pytest.mark.backend("helm")
def test_helm_finds_nothing_wrong(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(VALUES))
    command = [
        tools.require("helm"),
        "lint",
        "--strict",
        "--kube-version",
        KUBERNETES,
        str(CHART),
        "--values",
        str(values),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.backend("helm")
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"image": {"repository": ""}}, "/image/repository"),
        ({"home": {"claim": ""}}, "home/claim"),
        ({"secrets": {"token": {"name": "", "key": "token"}}}, "/secrets/token/name"),
        ({"secrets": {"token": {"value": "hunter2"}}}, "/secrets/token"),
        ({"environment": {"PGPASSWORD": "hunter2"}}, "PGPASSWORD"),
    ],
)
def test_values_that_are_refused(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    """What has no default, and secrets that are no references."""
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({**VALUES, **changed}))
    command = [
        tools.require("helm"),
        "template",
        "mine",
        str(CHART),
        "--kube-version",
        KUBERNETES,
        "--values",
        str(values),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and words in done.stderr, done.stderr


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A schema for each kind, made of Kubernetes' own description of its API; with no field that it does not know."""
    definitions = json.loads(Path(tools.require("kubernetes")).read_text())["definitions"]
    folder = tmp_path_factory.mktemp("schemas")
    for definition in definitions.values():
        if definition.get("format") == "int-or-string":
            definition["type"] = ["integer", "string"]
        if "properties" in definition:
            definition.setdefault("additionalProperties", False)
    for name, definition in definitions.items():
        if re.match(r"io\.k8s\.api\.\w+\.v1\.", name) and "x-kubernetes-group-version-kind" in definition:
            file = folder / f"{definition['x-kubernetes-group-version-kind'][0]['kind'].lower()}.json"
            file.write_text(json.dumps({"$ref": f"#/definitions/{name}", "definitions": definitions}))
    return folder


@pytest.mark.backend("helm", "kubeconform", "kubernetes")
@pytest.mark.parametrize("executors", [2, 0])
def test_kubernetes_would_take_it(tmp_path: Path, schemas: Path, executors: int) -> None:
    documents = rendered(tmp_path, executors={"instances": executors})
    documents += [{**each, "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}} for each in pods(documents)]
    file = tmp_path / "rendered.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    command = [tools.require("kubeconform"), "-strict", "-summary", "-output", "json", "-schema-location"]
    done = subprocess.run(
        [*command, f"{schemas}/{{{{.ResourceKind}}}}.json", str(file)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["summary"]["valid"] == len(documents)


@pytest.mark.backend("helm")
@pytest.mark.parametrize("executors", [2, 0])
def test_pods_have_no_more_rights_than_they_need(tmp_path: Path, executors: int) -> None:
    documents = rendered(tmp_path, executors={"instances": executors, "cores": 1, "memory": "1g", "overhead": "1g"})
    for pod in pods(documents):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] != 0
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            for variable in container.get("env", []):
                secret = re.search("SECRET|PASSWORD|TOKEN", variable["name"])
                assert ("valueFrom" in variable) == bool(secret), variable
    driver, executor = sorted(pods(documents), key=lambda pod: "serviceAccountName" not in pod["spec"])
    assert driver["spec"]["automountServiceAccountToken"] is (executors > 0)
    assert executor["spec"]["automountServiceAccountToken"] is False
    names = [each["name"] for each in executor["spec"]["containers"][0]["env"]]
    assert "PGPASSWORD" not in names and "SPARK_CONNECT_AUTHENTICATE_TOKEN" not in names
    (role,) = of(documents, "Role")
    assert not [rule for rule in role["rules"] if "*" in rule["verbs"] + rule["resources"] + rule["apiGroups"]]
    assert not [rule for rule in role["rules"] if "secrets" in rule["resources"]]
    container = driver["spec"]["containers"][0]
    assert {"startupProbe", "readinessProbe", "livenessProbe", "resources"} <= set(container)
    assert {"requests", "limits"} <= set(container["resources"])
    guarded = [each["spec"]["podSelector"]["matchLabels"] for each in of(documents, "NetworkPolicy")]
    assert {labels["app.kubernetes.io/component"] for labels in guarded} == {"connect", "executor"}


@pytest.mark.backend("helm")
@pytest.mark.parametrize(("executors", "master"), [(2, "k8s://https://kubernetes.default.svc"), (0, "local[*]")])
def test_the_settings_of_the_chart_are_settings(tmp_path: Path, executors: int, master: str) -> None:
    documents = rendered(tmp_path, executors={"instances": executors, "cores": 1, "memory": "1g", "overhead": "1g"})
    (settings,) = of(documents, "ConfigMap")
    config = parse_settings(settings["data"]["server.toml"], "server.toml")
    assert config.spark.master == master and config.spark.conf["spark.altneu.code"] == "installed"
    assert parse_settings(settings["data"]["home.toml"], "home.toml").landing.uri == "s3://altneu/landing"


# -- Compose ------------------------------------------------------------------------------------------------------


def services() -> dict[str, Any]:
    return dict(yaml.safe_load(COMPOSE.read_text())["services"])


@pytest.mark.backend("compose")
def test_compose_reads_its_file() -> None:
    """By the library that Docker Compose reads it with: it knows every field, and finds what services name."""
    done = subprocess.run(
        [tools.require("compose"), "compose.yaml"], cwd=COMPOSE.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = yaml.safe_load(done.stdout)["services"]
    assert set(found) >= set(services()) - {"altneu"}
    assert found["scheduler"]["environment"]["ALTNEU_HOME"] == "/data/home"
    assert found["worker"]["deploy"]["replicas"] == 2


def test_secrets_are_drawn_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    infra, bin_ = tmp_path / "infra", tmp_path / "bin"
    infra.mkdir()
    bin_.mkdir()
    shutil.copy(REPO / "infra/compose", infra)
    (bin_ / "docker").write_text("#!/bin/sh\necho docker $*\n")
    (bin_ / "docker").chmod(0o755)
    environment = os.environ | {"PATH": f"{bin_}:{os.environ['PATH']}"}
    found = []
    for _ in range(2):
        done = subprocess.run([infra / "compose", "ps"], env=environment, capture_output=True, text=True)
        assert done.stdout == "docker compose --file compose.yaml ps\n", done.stderr
        files = {path.name: path for path in (infra / "secrets").iterdir()}
        assert set(files) == {"altneu.env", "airflow.env", "postgres.env", "s3.env"}
        assert all(path.stat().st_mode & 0o077 == 0 for path in files.values())
        lines = [line.partition("=") for path in files.values() for line in path.read_text().splitlines()]
        found.append({name: value for name, _, value in lines})
    assert found[0] == found[1] and all(found[0].values())
    assert found[0]["PGPASSWORD"] == found[0]["POSTGRES_PASSWORD"] and len(found[0]["PGPASSWORD"]) == 64
    assert found[0]["AWS_SECRET_ACCESS_KEY"] == found[0]["ROOT_SECRET_KEY"] != found[0]["PGPASSWORD"]
    files = [file for each in services().values() for file in each["env_file"]]
    assert set(files) == {"secrets/altneu.env", "secrets/airflow.env", "secrets/postgres.env", "secrets/s3.env"}


def test_the_services_are_healthy_closed_and_without_secrets() -> None:
    text = COMPOSE.read_text()
    assert not re.search(r"(PASSWORD|SECRET|TOKEN|FERNET)\w*\s*[:=]\s*\S", text), "a secret stands in the file"
    found = services()
    once = {"prepared", "migrated", "altneu"}
    assert {name for name, each in found.items() if "healthcheck" not in each} == once
    published = {name: each["ports"] for name, each in found.items() if "ports" in each}
    assert published == {"api-server": ["127.0.0.1:8080:8080"]}
    for name, each in found.items():
        for other, how in each.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if other in once else "service_healthy"
            assert how["condition"] == wanted, (name, other)
    assert yaml.safe_load(text)["networks"]["inside"] == {"internal": True}


@pytest.mark.parametrize("name", ["home", "server"])
def test_the_settings_of_compose_are_settings(name: str) -> None:
    text = (REPO / f"infra/docker/{name}.toml").read_text()
    assert parse_settings(text, name).spark.master == tomllib.loads(text)["spark"]["master"]


# -- The image ----------------------------------------------------------------------------------------------------


def test_the_image_has_what_it_needs_and_nothing_else() -> None:
    ignored = (REPO / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert ignored[1] == "*" and all((REPO / each).exists() for each in kept)
    assert {"altneu", "algorithms", "expectations", "pipeline", "dags", "pyproject.toml"} <= kept
    text = (REPO / "infra/docker/Dockerfile").read_text()
    users = re.findall(r"^USER (\S+)", text, re.M)
    assert users == ["10001:10001"] and "altneu setup --s3" in text
    for copied in re.findall(r"^COPY (?!--from)(?:--\S+ )?(infra/\S+)", text, re.M):
        assert (REPO / copied).exists()


ROLES = {
    "head": "org.apache.spark.deploy.master.Master --host {host} --port 7077 --webui-port 8081",
    "worker spark://head:7077": "org.apache.spark.deploy.worker.Worker --host {host} --webui-port 8081 "
    "--work-dir /tmp/work spark://head:7077",
    "driver --class X app": "--conf spark.driver.bindAddress=10.0.0.7 --deploy-mode client --class X app",
    "executor": "-Da=b c -Dd=e -Xms1g -Xmx1g -cp {spark}/jars/*:{folder} "
    "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend --driver-url spark://d:1 --executor-id 3 "
    "--cores 2 --app-id app-1 --hostname 10.0.0.8 --resourceProfileId 0 --podName pod-3",
    "echo any command": "any command",
}


@pytest.mark.parametrize("role", ROLES)
def test_what_a_container_starts(role: str, tmp_path: Path) -> None:
    """With a Java and a Spark that print what they are given."""
    for program in ("java/bin/java", "spark/bin/spark-class", "spark/bin/spark-submit"):
        path = tmp_path / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('#!/bin/sh\nprintf "%s\\n" "$*"\n')
        path.chmod(0o755)
    spark = tmp_path / "spark"
    environment = {"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path / "java"), "SPARK_HOME": str(spark)}
    environment |= {"SPARK_LOCAL_HOSTNAME": "here", "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7"}
    environment |= {"SPARK_JAVA_OPT_0": "-Da=b c", "SPARK_JAVA_OPT_10": "-Dd=e", "SPARK_EXECUTOR_MEMORY": "1g"}
    environment |= {"SPARK_DRIVER_URL": "spark://d:1", "SPARK_EXECUTOR_ID": "3", "SPARK_EXECUTOR_CORES": "2"}
    environment |= {"SPARK_APPLICATION_ID": "app-1", "SPARK_EXECUTOR_POD_IP": "10.0.0.8"}
    environment |= {"SPARK_RESOURCE_PROFILE_ID": "0", "SPARK_EXECUTOR_POD_NAME": "pod-3"}
    done = subprocess.run(
        [str(REPO / "infra/docker/entrypoint"), *role.split()],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ROLES[role].format(host="here", spark=spark, folder=tmp_path)
