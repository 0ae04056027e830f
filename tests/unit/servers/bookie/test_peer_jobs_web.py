"""The scrubber and the data integrity check over HTTP, and the shell's commands for them.

Covers quire/servers/bookie/peer_jobs_web.py, quire/cli/shell/running/jobs.py; of quire doctor, what it asks the check.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import trio

from quire.cli.checkup.running import examine
from quire.cli.checkup.verdicts import CheckResult, Grade
from quire.cli.shell.main import run_shell
from tests.support.waiting import until
from tests.unit.bookie.build import Client
from tests.unit.servers.bookie.web_rig import with_web_and_jobs

pytestmark = pytest.mark.real_clock
SCRUB = "/api/v1/bookie/scrub"


async def test_a_put_begins_a_scrub_or_sets_its_rate_or_both(tmp_path: Path) -> None:
    async with with_web_and_jobs(tmp_path, {"localScrubRateLimit": 100}) as web:
        ask, jobs = web.ask, web.jobs
        assert json.loads((await ask(SCRUB))[1])["entriesPerSecond"] == 100
        assert json.loads((await ask(SCRUB, "PUT", {"entriesPerSecond": 7}))[1])["entriesPerSecond"] == 7
        assert not jobs.scrubber._asked.is_set(), "a rate alone begins nothing"
        assert (await ask(SCRUB, "PUT", {"begin": True, "entriesPerSecond": 5000}))[0] == 200
        assert jobs.scrubber._asked.is_set()
        jobs.scrubber._asked = trio.Event()
        assert (await ask(SCRUB, "PUT"))[0] == 200
        assert jobs.scrubber._asked.is_set()


@pytest.mark.parametrize(
    "body", [{}, [], {"rate": 1}, {"begin": 1}, {"entriesPerSecond": 0}, {"entriesPerSecond": 1.5}, "x"]
)
async def test_a_put_that_is_not_understood_is_refused_and_changes_nothing(body: object, tmp_path: Path) -> None:
    async with with_web_and_jobs(tmp_path) as web:
        ask, jobs = web.ask, web.jobs
        code, text = await ask(SCRUB, "PUT", body)
        assert code == 400
        assert "must be" in text
        assert not jobs.scrubber._asked.is_set()
        assert jobs.scrubber.rate == 60


async def shell(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = await trio.to_thread.run_sync(lambda: run_shell(words, out=out, err=err, environment={}))
    return code, out.getvalue(), err.getvalue()


async def test_the_shell_shows_begins_and_slows_down_a_scrub(tmp_path: Path) -> None:
    async with with_web_and_jobs(tmp_path) as web, trio.open_nursery() as nursery:
        await Client(web.bookie).add(7, 0, 5)
        await web.bookie.checkpoint()
        scrubber = web.jobs.scrubber
        nursery.start_soon(scrubber.run)
        code, out, err = await shell("scrub", "-url", web.url)
        assert (code, err) == (0, "")
        assert "scrub: rests, 60 entries per second" in out
        assert "last whole scrub never" in out
        assert (await shell("scrub", "-now", "-rate", "900", "-url", web.url))[0] == 0
        assert scrubber.rate == 900
        await until(lambda: scrubber.counts.rounds)
        _, out, _ = await shell("scrub", "-u", web.url, "-json")
        found = json.loads(out)
        assert (found["rounds"], found["entriesRead"], found["entriesPerSecond"]) == (1, 5, 900)
        nursery.cancel_scope.cancel()


async def test_the_shell_shows_the_ledgers_in_limbo(tmp_path: Path) -> None:
    async with with_web_and_jobs(tmp_path) as web:
        web.bookie.storage.limbo.put(26, b"key")
        code, out, _ = await shell("-ledgeridformat", "hex", "dataintegrity", "-url", web.url)
        assert code == 0
        assert "data integrity check: rests, 1 ledgers in limbo" in out
        assert "  ledger 1a\n" in out
        found = json.loads((await shell("dataintegrity", "-url", web.url, "-json"))[1])
        assert (found["ledgersInLimbo"], found["ledgersWithLostEntries"]) == (1, 0)
        web.jobs.integrity.progress.lost[26] = None
        _, out, _ = await shell("-ledgeridformat", "hex", "dataintegrity", "-url", web.url)
        assert "  ledger 1a: an entry is lost, no member has it\n" in out


async def test_doctor_warns_of_ledgers_in_limbo_and_names_those_with_lost_entries(tmp_path: Path) -> None:
    async with with_web_and_jobs(tmp_path) as web:
        progress = web.jobs.integrity.progress

        async def limbo() -> CheckResult:
            found = await trio.to_thread.run_sync(lambda: list(examine(web.url, None, None)))
            (verdict,) = [each for each in found if each.name == "limbo"]
            return verdict

        assert (await limbo()).verdict is Grade.OK
        for ledger_id in range(20, 28):
            web.bookie.storage.limbo.put(ledger_id, b"key")
        progress.round_done("ledger 20: no other bookie answers")
        found = await limbo()
        assert found.verdict is Grade.WARNING
        assert "8 ledgers in limbo: ledger 20: no other bookie answers" in found.what
        progress.lost = dict.fromkeys(range(21, 28))
        found = await limbo()
        assert found.verdict is Grade.BAD
        assert "of 7 ledgers: 21, 22, 23, 24, 25 and 2 more" in found.what
        assert "quire shell readledger" in found.remedy


async def test_the_port_comes_from_the_configuration_and_a_failure_is_one_line(tmp_path: Path) -> None:
    conf = tmp_path / "bk_server.conf"
    async with with_web_and_jobs(tmp_path) as web:
        conf.write_text(f"httpServerEnabled=true\nhttpServerPort={web.url.rpartition(':')[2]}\n")
        code, out, _ = await shell("-conf", str(conf), "scrub")
        assert (code, out[:12]) == (0, "scrub: rests")
    code, _, err = await shell("-conf", str(conf), "scrub")
    assert code == 255
    assert "does not answer" in err
    conf.write_text("")
    code, _, err = await shell("-conf", str(conf), "dataintegrity")
    assert code == 255
    assert "httpServerEnabled=true" in err
    conf.write_text("httpServerEnabled=true\nhttpServerTlsEnable=true\n")
    code, _, err = await shell("-conf", str(conf), "scrub")
    assert code == 255
    assert "TLS" in err
