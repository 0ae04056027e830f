"""Imports and collections of a start of `quire standalone`: both are most of its time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from quire.servers.process import GC_THRESHOLDS

NEEDLESS = {
    "kazoo",
    "quire.metadata.zookeeper.config",
    "quire.servers.broker.config",
    "quire.servers.broker.ledger_client",
    "statistics",
}
"""Modules that a standalone server does not need: they are for clusters, or for weighted draws of bookies."""

AT_READY = """
import gc, json, os, signal, sys
sys.path.insert(0, sys.argv.pop(1))
from quire.cli import main as cli

def collections():
    return [each["collections"] for each in gc.get_stats()]

def ready(line, **_):
    os.kill(os.getpid(), signal.SIGTERM)
    during = [count - earlier for count, earlier in zip(collections(), before)]
    state = {"collections": during, "thresholds": gc.get_threshold(), "frozen": gc.get_freeze_count()}
    print(json.dumps({"line": line, "modules": list(sys.modules)} | state))

cli.print = ready
before = collections()
cli.main()
"""
"""Starts a server, prints its state when it is ready, and stops it."""


@pytest.fixture(scope="module")
def at_ready(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder, root = tmp_path_factory.mktemp("start"), Path(__file__).resolve().parents[4]
    (folder / "my.conf").write_text("bindAddress=127.0.0.1\nbrokerServicePort=0\nwebServicePort=0\n")
    command = [sys.executable, "-c", AT_READY, str(root), "standalone", "--data-dir", "data", "--conf", "my.conf"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    state: dict[str, Any] = json.loads(ran.stdout)
    return state


def test_a_start_imports_no_module_that_it_does_not_need(at_ready: dict[str, Any]) -> None:
    assert "quire.servers.standalone.web" in at_ready["modules"]
    assert NEEDLESS.isdisjoint(at_ready["modules"]), NEEDLESS & set(at_ready["modules"])


def test_a_start_does_not_look_for_garbage_while_it_imports(at_ready: dict[str, Any]) -> None:
    assert at_ready["line"].startswith("ready broker=")
    assert at_ready["collections"][1:] == [0, 0]
    assert at_ready["collections"][0] <= 2
    assert at_ready["thresholds"] == list(GC_THRESHOLDS)
    assert at_ready["frozen"] > 50_000
