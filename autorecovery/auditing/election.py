"""Election of the auditor: the candidate with the oldest vote wins.

    <root>/underreplication/auditorelection               the auditor's vote, for operators
    <root>/underreplication/auditorelection/V_<sequence>  ephemeral sequential: one candidate's vote

Each candidate watches the vote before its own, and its own vote. While the metadata service cannot be reached the
auditor continues: its writes are compare-and-set, so a second auditor does no harm. When its vote is gone it stops at
once and re-enters the election, behind the others.

Source: BookKeeper's ZkLedgerAuditorManager, AuditorElector.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import trio

from autorecovery.at_once import RETRY_S, first_change, first_of
from quire.metadata import marks as form
from quire.metadata import paths
from quire.metadata.errors import MalformedMetadataError, MetadataUnavailableError, NoNodeError
from quire.metadata.store import ANY_VERSION, Kind, MetadataStore
from quire.service.log import get_logger

log = get_logger(__name__)


def in_order(names: Iterable[str]) -> list[str]:
    """Return the votes among the children of the election, the oldest first (pure).

    >>> in_order(["V_0000000010", "V_0000000009", "other"])
    ['V_0000000009', 'V_0000000010']
    """
    votes = [(number, name) for name in names if (number := form.vote_number(name)) is not None]
    return [name for _, name in sorted(votes)]


def predecessor(names: Iterable[str], mine: str) -> str | None:
    """Return the vote right before `mine`, which must be among `names` (pure).

    None if there is none: `mine` has won.
    """
    votes = in_order(names)
    index = votes.index(mine)
    return votes[index - 1] if index else None


class AuditorElection:
    """One candidate, for one session of a store."""

    def __init__(
        self,
        store: MetadataStore,
        audit: Callable[[], Awaitable[None]],
        *,
        bookie_id: str,
        root: str = "/ledgers",
    ) -> None:
        """`audit` is run when this candidate becomes the auditor, and cancelled when it ceases to be; it must not end
        by itself.

        `bookie_id` is the candidate's name in the metadata.
        """
        self._store = store
        self._audit = audit
        self._vote = form.encode_owner(bookie_id)
        self._bookie_id = bookie_id
        self._folder = election_folder(root)
        self._mine: str | None = None
        """Name of our vote, which may have been removed."""
        self.is_auditor = False
        self.attempts = 0
        """Number of votes this candidate has made."""

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be a candidate until cancelled; starts when the vote exists.

        SessionExpiredError, and the errors of `audit`.
        """
        started = False
        while True:
            try:
                if self._mine is None:
                    self._mine = await self._stand()
                if not started:
                    task_status.started()
                    started = True
                await self._wait_or_audit(self._mine)
            except MetadataUnavailableError as error:
                log.info("auditor election unreachable, retrying", reason=str(error))
                await trio.sleep(RETRY_S)

    async def _stand(self) -> str:
        """Create a vote; return its name."""
        self.attempts += 1
        path = await self._store.create(
            paths.join(self._folder, form.VOTE_PREFIX),
            self._vote,
            kind=Kind.EPHEMERAL,
            sequential=True,
            make_parents=True,
        )
        return paths.name(path)

    async def _wait_or_audit(self, mine: str) -> None:
        """Run one round: wait for a change that our vote depends on, or be the auditor until the vote is gone."""
        own = self._store.watch(paths.join(self._folder, mine))
        try:
            names = await self._store.children(self._folder)
            if mine not in names:
                log.warning("auditor vote lost, re-entering the election", candidate=self._bookie_id, vote=mine)
                self._mine = None
                return
            before = predecessor(names, mine)
            if before is None:
                await self._be_auditor(mine)
                return
            ahead = self._store.watch(paths.join(self._folder, before))
            try:
                node = await self._store.get(paths.join(self._folder, before))
                if node is not None and node.mine:
                    # The vote was created, but the answer was lost.
                    self._mine = before
                    await self._withdraw(mine)
                elif node is not None:
                    await first_change([ahead, own])
            finally:
                ahead.close()
        finally:
            own.close()

    async def _withdraw(self, name: str) -> None:
        try:
            await self._store.delete(paths.join(self._folder, name))
        except NoNodeError:
            return

    async def _be_auditor(self, mine: str) -> None:
        """Audit, until our vote is gone."""
        await self._store.put(self._folder, self._vote, ANY_VERSION)
        log.info("elected auditor", candidate=self._bookie_id, vote=mine)
        self.is_auditor = True
        try:
            await first_of(self._audit_for_ever, partial(self._until_lost, mine), name="auditor")
        finally:
            self.is_auditor = False
        log.warning("no longer the auditor", candidate=self._bookie_id, vote=mine)
        self._mine = None

    async def _audit_for_ever(self) -> None:
        await self._audit()
        raise AssertionError("the auditor ended by itself")

    async def _until_lost(self, mine: str) -> None:
        path = paths.join(self._folder, mine)
        watch = self._store.watch(path)
        try:
            while True:
                try:
                    node = await self._store.get(path)
                    if node is None or not node.mine:
                        return
                except MetadataUnavailableError:
                    with trio.move_on_after(RETRY_S):
                        await watch.next()
                    continue
                await watch.next()
        finally:
            watch.close()


async def read_auditor(store: MetadataStore, root: str = "/ledgers") -> str | None:
    """Return the name of the auditor; None if there is none now, or its vote cannot be read. MetadataError."""
    folder = election_folder(root)
    try:
        for name in in_order(await store.children(folder)):
            node = await store.get(paths.join(folder, name))
            if node is not None:
                return form.decode_owner(node.value)
    except (NoNodeError, MalformedMetadataError):
        return None
    return None


def election_folder(root: str) -> str:
    """Return the folder of the votes."""
    return paths.join(root, "underreplication/auditorelection")
