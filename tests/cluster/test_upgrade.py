"""The runbook of an upgrade: the wheel of this checkout over that of an earlier commit, and back, under load."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pulsar
import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.support.pages.machines import programs
from tests.support.pages.walk import Walk
from tests.support.traffic import traffic
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.plan import Kind, Plan

pytestmark = [pytest.mark.cluster, pytest.mark.full]
ROOT = Path(__file__).parents[2]
COMMITS_BACK = 25
"""Distance of the earlier commit, along the first parents, where there is no tag."""
UNITS = {Kind.BOOKIE: ("bk", "quire-bookie"), Kind.BROKER: ("broker", "quire-broker")}
UNITS[Kind.RECOVERY] = ("recovery", "quire-autorecovery")


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def earlier() -> str:
    """Return the newest tag, or a commit some merges back, or the oldest one of a shallow clone."""
    tag = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if tag.returncode == 0:
        return tag.stdout.strip()
    return git("rev-list", "--first-parent", f"--max-count={COMMITS_BACK + 1}", "HEAD").splitlines()[-1]


def wheel_of(tree: Path, target: Path, *, mark: str) -> Path:
    """Build the wheel of a tree, with a module that names it; return its file."""
    (tree / "quire/installed_from.py").write_text(f'"""Name of this wheel."""\n\nNAME = "{mark}"\n')
    try:
        (made,) = WheelBuilder(str(tree)).build(directory=str(target), versions=["standard"])
    finally:
        (tree / "quire/installed_from.py").unlink()
    return Path(made)


def tree_of(commit: str, folder: Path) -> Path:
    folder.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    return folder


def install(machine: Path, wheel: Path) -> None:
    """Make an environment of its own for a machine, with the packages of this one, and a wheel of Quire."""
    venv.create(machine / "quire", symlinks=True)
    (packages,) = (machine / "quire/lib").glob("python*/site-packages")
    here = next(path for path in map(Path, sys.path) if path.name == "site-packages")
    (packages / "others.pth").write_text(f"{here}\n")
    python = str(machine / "quire/bin/python")
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel)]
    subprocess.run(pip, check=True, cwd=machine)


def running_from(cluster: LocalCluster) -> dict[str, str]:
    """Return for each process which wheel its machine has, and that it runs from there."""
    found = {}
    for node in cluster.nodes(*UNITS):
        program = Path(f"/proc/{cluster.state.pids[node.name].pid}/cmdline").read_bytes().split(b"\0")[0].decode()
        code = "from quire.installed_from import NAME; print(NAME)"
        found[node.name] = subprocess.run(
            [program, "-c", code], check=True, capture_output=True, text=True, cwd="/"
        ).stdout.strip()
    return found


def test_an_upgrade_under_load_and_back(tmp_path: Path) -> None:
    old = wheel_of(tree_of(earlier(), tmp_path / "old"), tmp_path / "wheels-old", mark="old")
    new = wheel_of(tree_of("HEAD", tmp_path / "new"), tmp_path / "wheels-new", mark="new")
    plan = Plan(bookies=3, brokers=2, recoveries=1, session_timeout_ms=3000)
    cluster = LocalCluster.make(tmp_path / "cluster", plan)
    units = {}
    for node in cluster.nodes(*UNITS):
        machine, unit = UNITS[node.kind]
        for name in (f"{machine}{node.number}", node.address):  # a template has its address
            units[f"{name} {unit}"] = node.name
            folder = tmp_path / "programs/opt" / name
            if node.address == name:
                folder.symlink_to(f"{machine}{node.number}")
            else:
                folder.mkdir(parents=True)
                install(folder, old)
    stands_for = programs(tmp_path / "programs", cluster.folder, units)
    brokers = cluster.nodes(Kind.BROKER)
    names: dict[str, object] = {
        "/etc/quire/bk_server.conf": cluster.shell_conf,
        "/opt/quire": f"{tmp_path}/programs/opt/\\$MACHINE/quire",
        "/srv/quire-new.whl": new,
        "/srv/quire-old.whl": old,
        "ssh {host}": "ssh {id}",
        "bk1:3181": cluster.nodes(Kind.BOOKIE)[0].address,
        **{f"broker{each.number}:8080": f"127.0.0.1:{each.ports[1]}" for each in brokers},
    }
    page = Walk("runbooks/upgrade.md", tmp_path / "walk", names, programs=stands_for)
    try:
        cluster.up()
        environment = {**os.environ, "PATH": f"{stands_for}:{os.environ['PATH']}"}
        for node in cluster.nodes(*UNITS):
            machine, unit = UNITS[node.kind]
            subprocess.run(
                ["ssh", f"{machine}{node.number}", "systemctl", "restart", unit], env=environment, check=True
            )
        cluster.refresh()
        assert set(running_from(cluster).values()) == {"old"}
        client = pulsar.Client(cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        pids = dict(cluster.state.pids)
        with traffic(client, "orders") as seen, page:
            for section in ("Before", "Auto recovery", "Bookies, one at a time", "Brokers, one at a time", "Check"):
                page.section(section)
            cluster.refresh()
            assert set(running_from(cluster).values()) == {"new"}
            upgraded = dict(cluster.state.pids)
            assert not {name for name in units.values() if upgraded[name] == pids[name]}
            page.section("Back")
            cluster.refresh()
            assert set(running_from(cluster).values()) == {"old"}
            assert not {name for name in units.values() if upgraded[name] == cluster.state.pids[name]}
        client.close()
        assert len(seen.sent) > 100
        assert not cluster.errors()
    finally:
        cluster.refresh()
        cluster.abandon()
