"""Dockerfile, compose file, systemd units and Helm chart: what a parser and a schema can check of them.

The chart is rendered by helm itself, which is found in PATH, or built with `go install`.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from quire.cli.checkup.configured import Server, read
from quire.servers.cluster_config import load_config

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy/helm/quire"
UNITS = sorted((ROOT / "conf/systemd").glob("*.service"))
HELM = "helm.sh/helm/v3/cmd/helm@v3.19.5"
KUBERNETES = ("1.27.0", "1.34.0")
"""Versions for which the chart is rendered and validated."""


# --- the image


def instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile, continued lines joined."""
    joined = re.sub(r"(?m)^\s*#.*\n", "", text).replace("\\\n", " ")
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in joined.splitlines() if line.strip()]


def test_the_image_is_made_in_two_stages_and_runs_as_a_user_without_rights() -> None:
    found = instructions((ROOT / "Dockerfile").read_text())
    stages = [index for index, (name, _) in enumerate(found) if name == "FROM"]
    last = dict(found[stages[-1] :])
    assert len(stages) == 2
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", last["USER"])
    assert {"HEALTHCHECK", "VOLUME", "ENTRYPOINT", "CMD"} <= last.keys()
    assert last["STOPSIGNAL"] == "SIGTERM"
    for name in ("ENTRYPOINT", "CMD"):  # a shell between would not pass signals on
        assert isinstance(json.loads(last[name]), list)
    command = [*json.loads(last["ENTRYPOINT"]), *json.loads(last["CMD"])]
    assert command[:2] == ["quire", "standalone"]
    copied = [words.split()[:-1] for name, words in found[: stages[-1]] if name == "COPY"]
    for source in chain.from_iterable(copied):
        assert (ROOT / source).exists(), source


def test_the_build_gets_what_it_copies_and_nothing_else() -> None:
    ignore = (ROOT / ".dockerignore").read_text().split("\n")
    kept = {line[1:] for line in ignore if line.startswith("!")}
    found = instructions((ROOT / "Dockerfile").read_text())
    copied = {each for name, words in found if name == "COPY" and "--from" not in words for each in words.split()[:-1]}
    assert copied == kept
    assert "*" in ignore


def test_the_packages_of_the_wheel_are_in_the_image() -> None:
    wheel = re.search(
        r"\[tool\.hatch\.build\.targets\.wheel\]\npackages = (\[.*\])", (ROOT / "pyproject.toml").read_text()
    )
    assert wheel is not None
    dockerfile = (ROOT / "Dockerfile").read_text()
    for package in json.loads(wheel[1]):
        assert f"COPY {package} {package}\n" in dockerfile


# --- units


class Unit(configparser.ConfigParser):
    """A unit's keys, as they are written. The last value of a repeated key counts here."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def unit(path: Path) -> Unit:
    parser = Unit(interpolation=None, strict=False)
    parser.read(path)
    return parser


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_is_hardened_and_starts_an_existing_command(path: Path) -> None:
    service = unit(path)["Service"]
    _, command, *options = service["ExecStart"].split()
    assert path.stem == f"quire-{command}"
    said = subprocess.run(
        [sys.executable, "-m", "quire.cli.main", command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    for option in options[::2]:
        assert option in said
    assert service["User"] == "quire"
    assert (service["Restart"], service["KillSignal"]) == ("on-failure", "SIGTERM")
    assert int(service["LimitNOFILE"]) >= 65536
    hardened = ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "LockPersonality", "RestrictSUIDSGID")
    assert {service[each] for each in hardened} == {"true"}
    assert service["ProtectSystem"] == "strict"
    assert int(service["TimeoutStopSec"]) > 10


@pytest.mark.parametrize("name", ["standalone", "broker", "bookie", "autorecovery"])
def test_a_wrong_configuration_is_not_started_again(name: str, tmp_path: Path) -> None:
    conf = tmp_path / "wrong.conf"
    conf.write_text("bookiePort=no\nwebServicePort=no\nopenLedgerRereplicationGracePeriod=no\n")
    ran = subprocess.run(
        [sys.executable, "-m", "quire.cli.main", name, "--conf", conf],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    prevented = unit(ROOT / f"conf/systemd/quire-{name}.service")["Service"]["RestartPreventExitStatus"]
    assert str(ran.returncode) == prevented, ran.stderr


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """With systemd's own verifier, where the machine has it: a unit has no key that systemd does not know."""
    verifier = shutil.which("systemd-analyze")
    known = set((Path(__file__).parent / "systemd_keys.txt").read_text().split())
    for path in UNITS:
        for section in ("Unit", "Service", "Install"):
            assert set(unit(path)[section]) <= known, path
        if verifier is not None:
            copy = tmp_path / path.name
            copy.write_text(path.read_text().replace("/opt/quire/bin/quire", "/bin/true"))
            said = subprocess.run(
                [verifier, "verify", "--man=no", copy], capture_output=True, text=True, check=False, timeout=60
            )
            assert (said.returncode, path.name in said.stderr) == (0, False), said.stderr


# --- compose


def test_the_compose_file_is_valid_and_its_configurations_are_those_of_servers() -> None:
    path = ROOT / "deploy/compose/compose.yaml"
    checker = Path(sys.executable).parent / "check-jsonschema"
    subprocess.run(
        [checker, "--builtin-schema", "vendor.compose-spec", path], check=True, capture_output=True, timeout=60
    )
    services: dict[str, Any] = yaml.safe_load(path.read_text())["services"]
    for name, service in services.items():
        assert set(service.get("depends_on", {})) <= services.keys()
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (path.parent / source).exists(), (name, source)
        if name != "zookeeper":
            assert service["cap_drop"] == ["ALL"]
            assert service["command"][0] in (
                "bookie",
                "broker",
                "autorecovery",
                "initialize-cluster-metadata",
            )
    for number in (1, 2):
        assert read(path.parent / f"broker{number}.conf", Server.BROKER).metadata is not None
    assert load_config(path.parent / "bk_server.conf").metadata_service == "zk+hierarchical://zookeeper:2181/ledgers"


# --- the chart


@cache
def helm() -> str:
    """Return helm; a missing one is built. Without helm and go this fails: no test is skipped."""
    if found := shutil.which("helm"):
        return found
    go = shutil.which("go")
    assert go is not None, "there is neither helm nor go on this machine: install one of them"
    folder = ROOT / "out/bin"
    program = folder / "helm"
    if not program.exists():
        subprocess.run([go, "install", HELM], check=True, env={**os.environ, "GOBIN": str(folder)}, timeout=900)
    return str(program)


def render(version: str, *options: str) -> list[dict[str, Any]]:
    command = [helm(), "template", "example", str(CHART), "--kube-version", version, *options]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    return [each for each in yaml.safe_load_all(text) if each]


@pytest.mark.full
@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--set", "zookeeper.enabled=false,zookeeper.external=zk1:2181"),
        ("--set", "bookie.storageClass=fast,broker.config.maxMessageSize=1000,podAnnotations.a=b"),
    ],
    ids=["default", "external ZooKeeper", "settings"],
)
def test_the_chart_renders_to_valid_objects(version: str, options: tuple[str, ...]) -> None:
    import kubernetes_validate

    objects = render(version, *options)
    assert {each["kind"] for each in objects} >= {"StatefulSet", "Deployment", "Service", "ConfigMap", "Job"}
    for each in objects:
        kubernetes_validate.validate(each, ".".join(version.split(".")[:2]), strict=True)


@pytest.mark.full
def test_the_chart_passes_helms_own_check_and_refuses_a_missing_zookeeper() -> None:
    subprocess.run([helm(), "lint", "--strict", CHART], check=True, capture_output=True, timeout=60)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        render(KUBERNETES[0], "--set", "zookeeper.enabled=false")
    assert "zookeeper.external" in refused.value.stderr


@pytest.mark.full
def test_pods_of_the_chart_have_no_rights_and_configurations_that_servers_read(tmp_path: Path) -> None:
    objects = render(KUBERNETES[1], "--set", "broker.config.maxMessageSize=1000000")
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    for each in objects:
        if "template" not in each.get("spec", {}):
            continue
        pod = each["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert (
            each["kind"] == "Job"
            or each["spec"]["selector"]["matchLabels"].items() <= each["spec"]["template"]["metadata"]["labels"].items()
        )
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        volumes |= {claim["metadata"]["name"] for claim in each["spec"].get("volumeClaimTemplates", [])}
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
            named = {port["name"] for port in container.get("ports", [])}
            for probe in ("readinessProbe", "livenessProbe"):
                at = container.get(probe, {})
                port = (at.get("httpGet") or at.get("tcpSocket") or {}).get("port")
                assert port is None or port in named
    data = by_name["ConfigMap", "example-configuration"]["data"]
    for name, kind in (("broker.conf", Server.BROKER), ("bk_server.conf", Server.BOOKIE)):
        path = tmp_path / name
        path.write_text(data[name].replace("ADDRESS", "pod-0.example"))
        assert read(path, kind).metadata is not None
    selectors = [(each["metadata"]["name"], each["spec"]["selector"]) for each in objects if each["kind"] == "Service"]
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in objects if "template" in each.get("spec", {})]
    for name, selector in selectors:
        assert any(selector.items() <= each.items() for each in labels), name
