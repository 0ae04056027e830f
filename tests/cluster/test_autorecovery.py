"""`quire autorecovery` as processes, on a real ZooKeeper with real bookies: lost or damaged copies are made again from
the others, and every copy is read afterwards. docs/faults.md has the list, testdata/autorecovery.txt the stories.

"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.autorecovery_process import SESSION_MS, AutoRecoveryProcess, auto_recovery
from tests.support.bookies import BookieCluster, cluster
from tests.support.stories.recovery_verbs import play
from tests.support.stories.text import Story, stories_of

pytestmark = pytest.mark.cluster

STORY_S = 180.0
"""Maximum duration of a story, in seconds, on a busy machine."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieCluster]:
    with cluster(tmp_path_factory.mktemp("bookies"), 3, conf={"zkTimeout": SESSION_MS}) as made:
        yield made


@pytest.mark.real_clock(seconds=STORY_S)
@stories_of(Path(__file__).parent / "testdata" / "autorecovery.txt")
async def test_story(story: Story, shared: BookieCluster, tmp_path: Path) -> None:
    await play(story, shared, tmp_path)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def test_it_stops_when_asked_and_refuses_a_wrong_configuration(shared: BookieCluster) -> None:
    web = {"httpServerEnabled": "true", "httpServerHost": "127.0.0.1", "httpServerPort": 0}
    with auto_recovery(shared.folder, shared.uri, "stopped", **web) as [worker]:
        found = re.search(r"http=(\S+) ", worker.log())
        assert found is not None
        assert get(f"{found[1]}/heartbeat") == "OK\n"
        metrics = get(f"{found[1]}/metrics")
        assert "replication_worker_NUM_ENTRIES_WRITTEN" in metrics
        assert "auditor_IS_AUDITOR" in metrics
        assert worker.stop() == 0, worker.log()
    wrong = AutoRecoveryProcess(shared.folder, shared.uri, "wrong", rwRereplicateBackoffMs="soon")
    code, said = wrong.refused()
    assert code == 1
    assert "rwRereplicateBackoffMs" in said
