"""Racks are asked of the operator's program: rack_script.py, and the keys that name it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from autorecovery.config import RACK_MAP_CLASSES, SCRIPT_CLASS
from quire.servers.autorecovery import rack_script as module
from quire.servers.autorecovery.config import AUTORECOVERY
from quire.servers.autorecovery.rack_script import RackScript, rack_script
from quire.service.errors import ConfigError
from tests.support.waiting import until

pytestmark = pytest.mark.real_clock

Make = Callable[[str], str]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a program with these lines; return its path."""

    def write(lines: str) -> str:
        path = tmp_path / "racks.sh"
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o755)
        return str(path)

    return write


async def test_each_host_gets_its_location_in_calls_of_so_many_hosts(make: Make, tmp_path: Path) -> None:
    script = make(f'echo "$@" >> {tmp_path}/calls\nfor host in "$@"; do echo "eu/$host"; done')
    found = await RackScript(script, 2).locate(["h1", "h2", "h3"])
    assert found == {"h1": "/eu/h1", "h2": "/eu/h2", "h3": "/eu/h3"}
    assert (tmp_path / "calls").read_text() == "h1 h2\nh3\n"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("echo /r1", "1 locations for 2 hosts"),
        ("echo /r1 /r2; exit 3", "exit code 3"),
        ("yes | head -c 2000000", "more than 1048576 bytes printed"),
        (r"printf '\377\377 /r'", "can't decode"),
    ],
)
async def test_a_call_that_fails_gives_no_location_and_says_why(
    lines: str, reason: str, make: Make, log_events: list[dict[str, object]]
) -> None:
    assert await RackScript(make(lines), 100).locate(["h1", "h2"]) == {}
    assert reason in str(log_events[-1]["reason"])


async def test_a_program_that_does_not_end_is_killed_with_its_children(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log_events: list[dict[str, object]]
) -> None:
    monkeypatch.setattr(module, "RUN_S", 0.5)
    script = make(f"sleep 600 &\necho $! > {tmp_path}/child\nwait")
    with trio.fail_after(30):
        assert await RackScript(script, 100).locate(["h1"]) == {}
        assert log_events[-1]["reason"] == "no end in 0.5 s"
        child = int((tmp_path / "child").read_text())
        await until(lambda: not _lives(child))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_cannot_be_executed_is_refused_with_the_remedy(make: Make) -> None:
    path = make("echo /r1")
    os.chmod(path, 0o644)
    for value, reason in ((path, f"chmod [+]x {path}"), (f"{path}.not", "there is no such file")):
        config = AUTORECOVERY.build({"networkTopologyScriptFileName": value}).recovery
        with pytest.raises(ConfigError, match=reason):
            rack_script(config)


def test_the_class_decides_between_the_script_and_pulsars_map(make: Make) -> None:
    path = make("echo /r1")
    for name, asks in (("", True), (SCRIPT_CLASS, True), *((each, False) for each in RACK_MAP_CLASSES)):
        values = {"reppDnsResolverClass": name, "networkTopologyScriptFileName": path}
        assert (rack_script(AUTORECOVERY.build(values).recovery) is not None) == asks, name
    assert rack_script(AUTORECOVERY.build().recovery) is None
