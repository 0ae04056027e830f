"""The wheel, installed into an empty environment outside the checkout: the command runs, and a message goes through
it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from quire.distribution import DISTRIBUTION, installed_version
from tests.support.server import free_port

pytestmark = [pytest.mark.cluster, pytest.mark.full]

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.11", "3.13")
INSTALL_S = 900
ROUND = """
import sys
import trio
from quire.client.client import MessageId, open_client
from quire.client.packing import Packed
from quire.world.real import real_world

async def main():
    with trio.fail_after(60):
        async with open_client(real_world(), sys.argv[1]) as client:
            producer = await client.producer("persistent://public/default/t")
            payload = b"through the wheel"
            await producer.send([Packed(1, len(payload), b"", payload)])
            await producer.flush()
            reader = await client.reader("persistent://public/default/t", MessageId.EARLIEST)
            assert (await reader.receive()).entries[0].endswith(payload)

trio.run(main)
"""


def python_of(version: str) -> str:
    """Return an interpreter of that version, on PATH or of pyenv. A missing one is an error: no test is skipped."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" == version:
        return sys.executable
    found = [
        shutil.which(f"python{version}"),
        *map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))),
    ]
    for each in found:
        # (a shim of pyenv stands for a version that may not be chosen: it then exits with 127)
        if each and subprocess.run([each, "-c", ""], check=False, capture_output=True, timeout=60).returncode == 0:
            return each
    pytest.fail(f"there is no Python {version} on this machine: install it, or put it on PATH")


@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheel_installs_and_serves_from_an_empty_folder(tmp_path: Path, version: str) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path / "wheel"), versions=["standard"])
    assert Path(wheel).name.startswith(f"{DISTRIBUTION.replace('-', '_')}-{installed_version()}-")
    folder = tmp_path / "empty"
    folder.mkdir()
    subprocess.run([python_of(version), "-m", "venv", tmp_path / "venv"], check=True, timeout=INSTALL_S)
    programs = tmp_path / "venv" / "bin"
    install = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel]
    subprocess.run(install, check=True, timeout=INSTALL_S, cwd=folder)
    assert serves(programs, folder) == f"quire {installed_version()}"


def serves(programs: Path, folder: Path) -> str:
    """Return the output of `quire version`, after a message went through a standalone server."""
    said = subprocess.run(
        [programs / "quire", "version"], check=True, capture_output=True, text=True, cwd=folder, timeout=60
    )
    port = free_port()
    (folder / "standalone.conf").write_text(f"brokerServicePort={port}\n")
    command = [str(programs / "quire"), "standalone", "--data-dir", "data", "--conf", "standalone.conf", "--no-http"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("ready ")
            url = f"pulsar://127.0.0.1:{port}"
            subprocess.run([programs / "python", "-c", ROUND, url], check=True, cwd=folder, timeout=120)
        finally:
            server.terminate()
        assert server.wait(60) == 0
    return said.stdout.strip()
