from __future__ import annotations

from random import Random

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from autorecovery.auditing.election import AuditorElection, in_order, predecessor, read_auditor
from quire.metadata.errors import MetadataUnavailableError, SessionExpiredError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Kind

FOLDER = "/ledgers/underreplication/auditorelection"


class Candidate:
    def __init__(self, tree: MemoryTree, name: str, store: MemoryStore | None = None) -> None:
        self.name = name
        self.store = store or MemoryStore(tree)
        self.election = AuditorElection(self.store, self._audit, bookie_id=name)
        self.audits = 0
        self.auditing = False
        self.scope = trio.CancelScope()

    async def _audit(self) -> None:
        self.audits += 1
        self.auditing = True
        try:
            await trio.sleep_forever()
        finally:
            self.auditing = False

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with self.scope:
            await self.election.run(task_status=task_status)


@pytest.fixture
async def tree(nursery: trio.Nursery) -> MemoryTree:
    tree = MemoryTree()
    nursery.start_soon(tree.run)
    return tree


async def started(tree: MemoryTree, nursery: trio.Nursery, *names: str) -> list[Candidate]:
    candidates = [Candidate(tree, name) for name in names]
    for each in candidates:
        await nursery.start(each.run)
    await wait_all_tasks_blocked()
    return candidates


def test_votes_are_ordered_by_their_number() -> None:
    names = ["V_0000000010", "V_0000000009", "V_-000000001", "x", "V_"]
    assert in_order(names) == ["V_-000000001", "V_0000000009", "V_0000000010"]
    assert predecessor(names, "V_0000000010") == "V_0000000009"
    assert predecessor(names, "V_-000000001") is None


async def test_the_first_candidate_is_the_auditor_and_says_so_where_the_originals_look(tree, nursery):
    assert await read_auditor(MemoryStore(tree)) is None
    candidates = await started(tree, nursery, "b1:3181", "b2:3181", "b3:3181")
    assert [each.auditing for each in candidates] == [True, False, False]
    assert [each.election.is_auditor for each in candidates] == [True, False, False]
    store = MemoryStore(tree)
    assert await read_auditor(store) == "b1:3181"
    folder, vote = await store.get(FOLDER), await store.get(f"{FOLDER}/V_0000000000")
    assert folder is not None
    assert vote is not None
    assert (folder.value, vote.value, vote.ephemeral) == (b'bookieId: "b1:3181"\n', b'bookieId: "b1:3181"\n', True)


async def test_auditors_that_die_one_after_the_other_are_followed(tree: MemoryTree, nursery: trio.Nursery) -> None:
    candidates = await started(tree, nursery, "b1", "b2", "b3", "b4")
    for dying, following in ((1, 0), (0, 2), (2, 3)):  # (first one that waits: nothing changes)
        candidates[dying].scope.cancel()
        tree.expire(candidates[dying].store.session)
        await wait_all_tasks_blocked()
        assert [each.auditing for each in candidates] == [index == following for index in range(4)]
        assert await read_auditor(MemoryStore(tree)) == candidates[following].name


async def test_an_auditor_whose_vote_is_gone_stops_at_once_and_stands_again_behind_the_others(tree, nursery):
    first, second = await started(tree, nursery, "b1", "b2")
    await MemoryStore(tree).delete(f"{FOLDER}/V_0000000000")
    await wait_all_tasks_blocked()
    assert (first.auditing, second.auditing) == (False, True)
    await MemoryStore(tree).delete(f"{FOLDER}/V_0000000001")
    await wait_all_tasks_blocked()
    assert (first.auditing, second.auditing) == (True, False)
    assert (first.audits, second.audits, first.election.attempts) == (2, 1, 2)


async def test_a_candidate_whose_vote_is_gone_stands_again_while_it_waits(tree: MemoryTree, nursery: trio.Nursery):
    first, second = await started(tree, nursery, "b1", "b2")
    await MemoryStore(tree).delete(f"{FOLDER}/V_0000000001")
    await wait_all_tasks_blocked()
    assert await MemoryStore(tree).children(FOLDER) == ["V_0000000000", "V_0000000002"]
    assert (first.auditing, second.auditing, second.election.attempts) == (True, False, 2)


async def test_the_end_of_the_session_ends_the_candidate(tree: MemoryTree, nursery: trio.Nursery) -> None:
    candidate = Candidate(tree, "b1")
    async with trio.open_nursery() as inner:

        async def stand() -> None:
            with pytest.raises(SessionExpiredError):
                await candidate.run()

        inner.start_soon(stand)
        await wait_all_tasks_blocked()
        assert candidate.auditing
        tree.expire(candidate.store.session)
    assert not candidate.auditing


async def test_an_auditor_without_a_connection_goes_on_until_it_knows_better(tree: MemoryTree, nursery: trio.Nursery):
    (first,) = await started(tree, nursery, "b1")
    first.store.disconnect()
    await trio.sleep(20)
    assert first.auditing
    first.store.reconnect()
    await trio.sleep(5)
    assert first.auditing
    assert first.audits == 1


async def test_a_vote_whose_answer_was_lost_is_not_waited_for(tree, nursery, monkeypatch):
    candidate = Candidate(tree, "b1")
    create = candidate.store.create
    lost = 0

    async def lossy(path: str, value: bytes = b"", **how: object) -> str:
        nonlocal lost
        made = await create(path, value, kind=Kind.EPHEMERAL, sequential=True, make_parents=True)
        if lost < 2:
            lost += 1
            raise MetadataUnavailableError("the answer is lost")
        return made

    monkeypatch.setattr(candidate.store, "create", lossy)
    await nursery.start(candidate.run)
    await wait_all_tasks_blocked()
    assert candidate.auditing
    assert await MemoryStore(tree).children(FOLDER) == ["V_0000000000"]


async def test_there_is_one_auditor_whoever_comes_and_goes(tree: MemoryTree, nursery: trio.Nursery) -> None:
    rng = Random(7)
    alive: list[Candidate] = []
    for number in range(60):
        if not alive or rng.random() < 0.55:
            store = MemoryStore(tree, latency=lambda: rng.random() / 10)
            alive.append(Candidate(tree, f"b{number}", store))
            nursery.start_soon(alive[-1].run)
        else:
            dying = alive.pop(rng.randrange(len(alive)))
            dying.scope.cancel()
            tree.expire(dying.store.session)
        await trio.sleep(rng.choice((0.0, 0.05, 5.0)))
    await trio.sleep(5)
    assert len(alive) > 1
    assert sum(each.auditing for each in alive) == 1
