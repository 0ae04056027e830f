"""The HTTP port gives the original's answers."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import trio
from starlette.requests import Request
from starlette.responses import Response

from quire.metadata import bookies
from quire.metadata.bookies import BookieServiceInfo, Endpoint
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledgers import Fragment, LedgerManager, LedgerMetadata
from quire.servers.bookie import ledgers_web
from quire.servers.bookie.config import BOOKIE
from quire.servers.bookie.ledgers_web import LedgerResources
from quire.service import jackson
from tests.unit.bookie.build import Client
from tests.unit.servers.bookie.web_rig import with_web

pytestmark = pytest.mark.real_clock

GOLDEN = Path(__file__).parents[3] / "golden/bookkeeper/http"
ROOT = Path(__file__).parents[4]
OF_ONE = LedgerMetadata(
    ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(first_entry_id=0, bookies=("b:1",)),)
)
ELSEWHERE = (
    "/api/v1/autorecovery/",
    "/api/v1/bookie/cluster_info",
    "/api/v1/bookie/list_bookie_info",
    "/api/v1/ledger/read",
)
"""Resources whose answers depend on the cluster: test_cluster_web.py, and tests/unit/servers/autorecovery."""
BY_NAME = (
    "/suspend_compaction",
    "/state",
    "/readonly",
    "/sanity",
    "/info",
    "/gc",
    "/list_disk_file",
    "file_type=journal",
)
"""Resources whose answers always have the same names."""


async def test_the_state_is_told_and_changed_in_the_originals_json(tmp_path: Path) -> None:
    async with with_web(tmp_path) as (ask, bookie, _):
        assert await ask("/heartbeat") == (200, "OK\n")
        assert await ask("/api/v1/bookie/is_ready") == (200, "OK")
        assert await ask("/api/v1/bookie/state/readonly") == (200, '{\n  "readOnly" : false\n}')
        assert await ask("/api/v1/bookie/state/readonly", "PUT", {"readOnly": True}) == (
            200,
            '{\n  "readOnly" : true\n}',
        )
        assert bookie.read_only
        _, text = await ask("/api/v1/bookie/state")
        assert json.loads(text) == {
            "running": True,
            "readOnly": True,
            "shuttingDown": False,
            "availableForHighPriorityWrites": True,
        }
        _, text = await ask("/api/v1/bookie/state?reason=true")
        assert json.loads(text)["readOnlyReason"] == "an operator said so; PUT /api/v1/bookie/state/readonly ends it"
        assert (await ask("/api/v1/bookie/state/readonly", "PUT", {"readOnly": "x"}))[0] == 400
        assert (await ask("/api/v1/bookie/state/readonly", "PUT", {"readOnly": False}))[0] == 200
        assert not bookie.read_only
        assert "readOnlyReason" not in (await ask("/api/v1/bookie/state?reason=true"))[1]


async def test_a_mode_that_is_set_is_on_the_disk_when_it_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with with_web(tmp_path, {"persistBookieStatusEnabled": True}) as (ask, bookie, _):
        path = tmp_path / "ledgers/current/BOOKIE_STATUS"
        assert (await ask("/api/v1/bookie/state/readonly", "PUT", {"readOnly": True}))[0] == 200
        assert path.read_text().startswith("1,READ_ONLY,")
        assert (await ask("/api/v1/bookie/state/readonly", "PUT", {"readOnly": False}))[0] == 200
        assert path.read_text().startswith("1,READ_WRITE,")

        def full(disk: object, path: str, data: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(type(bookie.world.disk), "write_atomic", full)
        status, text = await ask("/api/v1/bookie/state/readonly", "PUT", {"readOnly": True})
        assert (status, "cannot be stored for a restart" in text) == (500, True)
        assert bookie.read_only
        monkeypatch.undo()


async def test_a_bookie_that_must_be_read_only_cannot_be_switched(tmp_path: Path) -> None:
    async with with_web(tmp_path, {"forceReadOnlyBookie": True}) as (ask, _, _):
        assert (await ask("/api/v1/bookie/state/readonly", "PUT", {"readOnly": False})) == (
            400,
            "Bookie is in forceReadOnly mode, cannot transit to writable mode",
        )
        assert await ask("/api/v1/bookie/sanity") == (200, '{\n  "passed" : true,\n  "readOnly" : true\n}')


async def test_sanity_writes_and_reads_and_leaves_nothing(tmp_path: Path) -> None:
    async with with_web(tmp_path) as (ask, bookie, _):
        assert await ask("/api/v1/bookie/sanity") == (200, '{\n  "passed" : true,\n  "readOnly" : false\n}')
        assert bookie.storage.ledgers() == []
        assert bookie.stats.adds == 1


async def test_the_disk_is_told(tmp_path: Path) -> None:
    async with with_web(tmp_path) as (ask, bookie, _):
        bookie.total_bytes = lambda folder: 1 << 60
        await Client(bookie).add(7, 0)
        await bookie.checkpoint()
        info = json.loads((await ask("/api/v1/bookie/info"))[1])
        assert info["totalSpace"] == 1 << 60
        assert 0 < info["freeSpace"] < 1 << 60
        mark = bookie.last_mark
        expected = {f"LastLogMark: Journal Id - {mark.file_id}({mark.file_id:x}.txn)": f"Pos - {mark.offset}"}
        assert json.loads((await ask("/api/v1/bookie/last_log_mark"))[1]) == expected
        files = json.loads((await ask("/api/v1/bookie/list_disk_file"))[1])
        assert files == {"journal files": f"{mark.file_id:x}.txn\t", "entrylog files": "0.log\t", "index files": ""}
        assert list(json.loads((await ask("/api/v1/bookie/list_disk_file?file_type=entrylog"))[1])) == [
            "entrylog files"
        ]


async def test_the_configuration_is_told_without_its_secrets(tmp_path: Path) -> None:
    async with with_web(tmp_path) as (ask, _, _):
        found = json.loads((await ask("/api/v1/config/server_config"))[1])
        assert found["bookieId"] == "b:1"
        assert found["journalSyncData"] == "true"
        assert found["quireZooKeeperAuth"] == "***"


@pytest.mark.parametrize("asked", ["", "print_metadata=true", "print_metadata=true&decode_meta=true"])
async def test_a_long_list_of_ledgers_is_written_in_short_steps(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 ids in one step would hold the event loop for 0.3 s; here small steps stand for that."""
    monkeypatch.setattr(jackson, "STEP_CHARACTERS", 100)
    async with with_web(tmp_path) as (_, bookie, store):
        manager = LedgerManager(store, ids=SequenceLedgerIds(store, "/ledgers"), rng=bookie.world.rng)
        ids = [(await manager.create(OF_ONE))[0] for _ in range(200)]
        resources = LedgerResources(bookie.world, store, "/ledgers")
        passes = 0

        async def count() -> None:
            nonlocal passes
            while True:
                await trio.lowlevel.checkpoint()
                passes += 1

        async def begin_to_write(members: Iterable[tuple[str, object]]) -> Response:
            nonlocal passes
            passes = 0
            return await jackson.object_in_steps(members)

        monkeypatch.setattr(ledgers_web, "object_in_steps", begin_to_write)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            found = await resources.list_ledgers(Request({"type": "http", "query_string": asked.encode()}))
            nursery.cancel_scope.cancel()
        assert list(json.loads(bytes(found.body))) == [str(each) for each in ids]
        longest = max(map(len, bytes(found.body).split(b'\n  "')))
        assert passes >= len(found.body) // (200 + longest) > 10


async def test_ledgers_are_listed_described_deleted_and_collected(tmp_path: Path) -> None:
    async with with_web(tmp_path) as (ask, bookie, store):
        manager = LedgerManager(store, ids=SequenceLedgerIds(store, "/ledgers"), rng=bookie.world.rng)
        ids = [(await manager.create(OF_ONE))[0] for _ in range(3)]
        client = Client(bookie)
        for ledger_id in ids:
            await client.add(ledger_id, 0)
        assert json.loads((await ask("/api/v1/ledger/list"))[1]) == {str(ledger_id): None for ledger_id in ids}
        assert await ask("/api/v1/ledger/list?print_metadata=true&page=2") == (200, "{ }")
        listed = json.loads((await ask("/api/v1/ledger/list?print_metadata=true"))[1])
        assert list(listed) == [str(ledger_id) for ledger_id in ids]
        assert all(each.startswith("BookieMetadataFormatVersion\t3\n") for each in listed.values())
        decoded = json.loads((await ask("/api/v1/ledger/list?print_metadata=true&decode_meta=true&page=1"))[1])
        assert [each["ensembleSize"] for each in decoded.values()] == [1, 1, 1]
        for query in ("print_metadata=true&page=x", "page=x"):
            assert await ask(f"/api/v1/ledger/list?{query}") == (400, "page must be a number")
        # (without metadata there are no pages, as in the original)
        assert len(json.loads((await ask("/api/v1/ledger/list?page=2"))[1])) == 3
        described = json.loads((await ask(f"/api/v1/ledger/metadata?ledger_id={ids[1]}"))[1])[str(ids[1])]
        assert described["ensembleSize"] == 1
        assert described["state"] == "OPEN"
        assert described["allEnsembles"] == {"0": [{"id": "b:1"}]}
        assert await ask("/api/v1/ledger/metadata?ledger_id=99999999") == (500, "Internal Server Error")
        assert (await ask("/api/v1/ledger/delete"))[1] == "Not found method. Should be DELETE method"
        assert (await ask("/api/v1/ledger/delete", "DELETE"))[0] == 404
        deleted = await ask(f"/api/v1/ledger/delete?ledger_id={ids[1]}", "DELETE")
        assert deleted == (200, f'"Deleted ledger: {ids[1]}"')
        assert await ask("/api/v1/bookie/gc", "PUT", {"forceMajor": True}) == (
            200,
            '"Triggered GC on BookieServer: b:1"',
        )
        for _ in range(1000):
            if await ask("/api/v1/bookie/gc") == (200, '{\n  "is_in_force_gc" : "false"\n}'):
                break
        assert bookie.storage.ledgers() == [ids[0], ids[2]]


async def test_bookies_are_listed_by_kind_and_with_their_hosts(tmp_path: Path) -> None:
    async with with_web(tmp_path) as (ask, _, store):
        info = BookieServiceInfo(endpoints=(Endpoint(host="h1", port=1),))
        await bookies.register(store, "one:1", info)
        await bookies.register(store, "two:2", info, read_only=True)
        assert json.loads((await ask("/api/v1/bookie/list_bookies?type=rw&print_hostnames=true"))[1]) == {"one:1": "h1"}
        assert json.loads((await ask("/api/v1/bookie/list_bookies?type=ro"))[1]) == {"two:2": None}


async def test_what_is_not_there_is_told_as_the_original_does(tmp_path: Path) -> None:
    async with with_web(tmp_path) as (ask, _, _):
        assert await ask("/api/v1/nosuch") == (404, "<html><body><h1>Resource not found</h1></body></html>")
        assert (await ask("/heartbeat", "PUT"))[0] == 404


async def test_metrics_are_scraped_and_move(tmp_path: Path) -> None:
    async with with_web(tmp_path) as (ask, bookie, _):
        await Client(bookie).add(7, 0, 5)
        assert 'bookkeeper_server_ADD_ENTRY_REQUEST_count{success="true"} 5.0' in (await ask("/metrics"))[1]


async def test_a_bookie_that_must_stay_writable_cannot_be_made_read_only(tmp_path: Path) -> None:
    async with with_web(tmp_path, {"readOnlyModeEnabled": False}) as (ask, bookie, _):
        assert (await ask("/api/v1/bookie/state/readonly", "PUT", {"readOnly": True}))[0] == 400
        assert not bookie.read_only


async def test_calls_that_were_made_to_the_original_are_answered_with_the_same_status_and_the_same_names(
    tmp_path: Path,
) -> None:
    calls = json.loads((GOLDEN / "http.json").read_text())
    served = [call for call in calls if not call["path"].startswith(ELSEWHERE)]
    assert len(served) > 20
    async with with_web(tmp_path) as (ask, bookie, store):
        manager = LedgerManager(store, ids=SequenceLedgerIds(store, "/ledgers"), rng=bookie.world.rng)
        for _ in range(200):
            await manager.create(OF_ONE)
        for call in served:
            status, body = await ask(call["path"], call["method"], call["request"])
            assert status == call["status"], call["path"]
            if body.startswith("{") and call["path"].endswith(BY_NAME):
                assert json.loads(body).keys() == json.loads(call["body"]).keys(), call["path"]
            elif call["path"].endswith("gc_details"):
                assert re.sub(r"\d{13}", "", body) == re.sub(r"\d{13}", "", call["body"])
            elif not body.startswith("{") and call["path"] != "/metrics":
                assert body == call["body"].replace("127.0.0.1:3281", "b:1"), call["path"]


async def test_every_name_that_the_page_has_of_a_bookie_is_exposed_under_traffic(tmp_path: Path) -> None:
    async with with_web(tmp_path) as (ask, bookie, _):
        client = Client(bookie)
        await client.add(7, 0, 5)
        await client.read(7, 0)
        await bookie.checkpoint()
        _, text = await ask("/metrics")
        # (chunks of HTTP stand between the lines)
        seen = {line.partition("{")[0].split()[0] for line in text.splitlines() if line[:1] not in ("#", "")}
        page = (ROOT / "docs" / "metrics.md").read_text()
        row = r"^\| `(\w+)` \| (?:untyped|counter|gauge|summary) "
        listed = re.findall(row, page, re.MULTILINE)
        of_bookies = [name for name in listed if name.startswith(("bookie_", "bookkeeper_server_", "quire_bookie_"))]
        ours = ("bookie_adds", "bookie_add_bytes", "bookie_reads", "bookie_journal_syncs")
        assert [name for name in of_bookies if name not in seen and name not in ours] == ["quire_bookie_job_failures"]


async def test_every_path_of_the_original_is_served_and_a_wrong_method_is_answered_as_there(tmp_path: Path) -> None:
    wrong = [line.split(" | ") for line in (GOLDEN / "wrong-methods.txt").read_text().splitlines() if line[0] != "#"]
    assert len(wrong) == 32
    async with with_web(tmp_path) as (ask, _, _):
        for path, method, status, text in wrong:
            found = await ask(path, method)
            assert (path, *found) == (path, int(status), text)


async def test_garbage_is_not_collected_for_a_request_that_cannot_be_read(tmp_path: Path) -> None:
    async with with_web(tmp_path) as (ask, bookie, _):
        status, text = await ask("/api/v1/bookie/gc", "PUT", ["forceMajor"])
        assert (status, text.startswith("Failed to handle the request, exception: ")) == (400, True)
        assert not bookie.garbage.forced


async def test_a_switch_of_compaction_that_is_neither_true_nor_false_is_refused(tmp_path: Path) -> None:
    async with with_web(tmp_path) as (ask, bookie, _):
        for value in ("yes", 1, [True], dict[str, object]()):
            status, text = await ask("/api/v1/bookie/gc", "PUT", {"forceMajor": True, "forceMinor": value})
            assert (status, text.endswith("forceMinor must be true or false")) == (400, True)
            for word in ("suspend", "resume"):
                asked = {f"{word}Major": value, f"{word}Minor": True}
                expected = (400, f"{word}Major and {word}Minor must be true or false")
                assert await ask(f"/api/v1/bookie/gc/{word}_compaction", "PUT", asked) == expected
        assert not bookie.garbage.forced
        assert not bookie.garbage.schedule.suspended.minor


async def test_a_body_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    async with with_web(tmp_path) as (ask, bookie, _):
        for path in (
            "gc",
            "gc/suspend_compaction",
            "gc/resume_compaction",
            "state/readonly",
            "scrub",
        ):
            assert (path, (await ask(f"/api/v1/bookie/{path}", "PUT", b"[" * 100_000))[0]) == (path, 400)
        assert not bookie.garbage.forced


async def test_an_id_that_no_ledger_can_have_is_refused(tmp_path: Path) -> None:
    async with with_web(tmp_path) as (ask, _, _):
        refused = (404, "Not ledger found. Should provide ledger_id=<id>")
        for ledger_id in (-1, 1 << 63):
            assert await ask(f"/api/v1/ledger/metadata?ledger_id={ledger_id}") == refused
            assert await ask(f"/api/v1/ledger/delete?ledger_id={ledger_id}", "DELETE") == refused


async def test_no_value_of_a_secret_key_is_in_the_configuration_that_is_told(tmp_path: Path) -> None:
    secret = [name for name, key in BOOKIE.keys().items() if key.secret and key.default == ""]
    assert secret
    async with with_web(tmp_path, dict.fromkeys(secret, "digest:me:hidden")) as (ask, _, _):
        _, text = await ask("/api/v1/config/server_config")
        assert "hidden" not in text
        assert {json.loads(text)[name] for name in secret} == {"***"}
