"""quire.servers.late_imports: after it no first request imports anything on the event loop."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

FIRST = """
import json, sys
import trio
from quire.servers.late_imports import load_late
from quire.world.real import real_world
from tests.unit.broker.peers import in_broker
from tests.unit.broker.rest import rest_of

TOPIC = "/admin/v2/persistent/public/default/orders"

async def requests():
    async with in_broker() as room, rest_of(room, cluster=True) as rest:
        peer = await room.connect()
        await peer.producer()
        await peer.subscribe()
        assert await rest.status("GET", f"{TOPIC}/stats") == 200
        if LOADED:
            await load_late(real_world().offload)
        before = set(sys.modules)
        assert await rest.status("GET", f"{TOPIC}/explain") == 200
        assert await rest.status("POST", f"{TOPIC}/maxConsumers", json=5) == 204
        assert await rest.status("GET", f"{TOPIC}/maxConsumers") == 200
        print(json.dumps(sorted(set(sys.modules) - before)))

trio.run(requests)
"""


@pytest.mark.parametrize("loaded", [True, False])
def test_the_first_explanation_and_the_first_policy_import_nothing_more(loaded: bool) -> None:
    script = FIRST.replace("LOADED", str(loaded))
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    ours = [each for each in json.loads(ran.stdout.splitlines()[-1]) if each.split(".")[0] in ("broker", "quire")]
    assert bool(ours) is not loaded, ours
