"""HTTP resources that remove bookies.

    PUT /api/v1/autorecovery/bookie         {"bookie_src": ["b1:3181"], "delete_cookie": true}    see `shell recover`
    PUT /api/v1/autorecovery/decommission   {"bookie_src": "b1:3181", "delete_cookie": "true"}    `decommissionbookie`
    GET /api/v1/autorecovery/removals       ours: the requests, and how far they are

A request is answered as soon as it is accepted, as in the original; the work is done behind it, one request after the
other, and its result is in the log and in `removals`. Differences: all the bookies named are recovered, not only the
first; a ledger that cannot be recovered does not keep the others from it, but the cookies; more than WAITING_MAX
requests are refused.
Source: BookKeeper's RecoveryBookieService and DecommissionService (delete_cookie there: since 4.18).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

import trio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from autorecovery.config import AutoRecoveryConfig
from autorecovery.copying.bookie_recovery import BookieRecovery, LedgerPlan
from autorecovery.copying.replicator import Copied, Replicator
from autorecovery.copying.throttle import Throttle
from autorecovery.errors import AutoRecoveryError, NoAuditorError, RemovalRefusedError
from autorecovery.ledger_checker import LedgerChecker
from autorecovery.marks.underreplication import UnderreplicatedLedgers
from autorecovery.removal.decommissioning import Decommission, forget_cookie
from autorecovery.removal.recovering import RecoveryOutcome, concerned_ledgers, recover_ledgers, remedy
from quire.ledger.client import LedgerClient
from quire.ledger.errors import LedgerError
from quire.metadata.bookies import check_bookie_id
from quire.metadata.errors import InvalidPathError, MetadataError
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledgers import LedgerManager, read_layout
from quire.metadata.store import MetadataStore
from quire.service.errors import ConfigError
from quire.service.jackson import as_json, decoded
from quire.service.log import get_logger
from quire.service.routes import original_route
from quire.wire.bookkeeper.entry import DIGEST_TYPES
from quire.world.doors import Rng

log = get_logger(__name__)

OpenRepair = Callable[[], AbstractAsyncContextManager[tuple[LedgerClient, AutoRecoveryConfig]]]
"""Opens a client of the bookies, with the settings of auto recovery. ConfigError, MetadataError."""

WAITING_MAX: Final = 16
KEPT_MAX: Final = 32
"""Requests in `removals`, the newest."""
NAMED_MAX: Final = 20
"""Ledgers of a request whose failure has a line in the log."""
_PUT_ONLY: Final = "Not found method. Should be PUT method"


@dataclass(slots=True)
class Removal:
    """One request."""

    kind: str
    """"recover" or "decommission"."""
    bookies: tuple[str, ...]
    deletes_cookie: bool
    state: str = "waiting"
    """"waiting", "working", "done", "refused" or "failed"."""
    reason: str = ""
    ledgers: int = 0
    done: int = 0

    @property
    def is_over(self) -> bool:
        return self.state not in ("waiting", "working")

    def value(self) -> dict[str, Any]:
        """Return it for JSON."""
        found: dict[str, Any] = {
            "kind": self.kind,
            "bookies": list(self.bookies),
            "deleteCookie": self.deletes_cookie,
            "state": self.state,
            "ledgers": self.ledgers,
            "ledgersDone": self.done,
        }
        return {**found, "reason": self.reason} if self.reason else found


class RemovalResources:
    """The answers, one method per resource, and the work behind them."""

    def __init__(
        self,
        store: MetadataStore,
        marks: UnderreplicatedLedgers,
        root: str,
        rng: Rng,
        open_repair: OpenRepair,
        nursery: trio.Nursery,
    ) -> None:
        self._store = store
        self._marks = marks
        self._root = root
        self._rng = rng
        self._open_repair = open_repair
        self._nursery = nursery
        self._waiting: deque[Removal] = deque()
        self._kept: deque[Removal] = deque(maxlen=KEPT_MAX)
        self._is_working = False

    # --- requests

    async def recover(self, request: Request) -> Response:
        body = await request.body()
        if not body:
            return PlainTextResponse("No request body provide.", status_code=404)
        try:
            named, deletes = _recovery_of(body)
        except (ValueError, InvalidPathError) as error:
            return PlainTextResponse(f"ERROR parameters: {error}", status_code=404)
        if request.method != "PUT" or not named:
            return PlainTextResponse(_PUT_ONLY, status_code=404)
        return self._accept(Removal("recover", named, deletes), "Success send recovery request command.")

    async def decommission(self, request: Request) -> Response:
        body = await request.body()
        if not body:
            return PlainTextResponse("Null request body for DecommissionService.", status_code=404)
        try:
            asked = decoded(body)
        except ValueError:
            return PlainTextResponse("Internal Server Error", status_code=500)
        if not isinstance(asked, dict) or "bookie_src" not in asked:
            return PlainTextResponse("Request body not contains bookie_src.", status_code=404)
        named, deletes = asked["bookie_src"], asked.get("delete_cookie", False)
        try:
            _check_names(asked)
            if not isinstance(named, str):
                raise ValueError(f"bookie_src must be the id of a bookie, not {named!r}")
            check_bookie_id(named)
            wanted = str(deletes).lower() == "true"
        except (ValueError, InvalidPathError) as error:
            return PlainTextResponse(f"Exception when send decommission command.{error}", status_code=404)
        answer = f"Success send decommission Bookie command {named}"
        return self._accept(Removal("decommission", (named,), wanted), answer)

    async def removals(self, request: Request) -> Response:
        return as_json([each.value() for each in self._kept])

    def _accept(self, removal: Removal, answer: str) -> Response:
        """Queue the work, unless the same is queued or in progress already."""
        asked = removal.kind, removal.bookies
        if any(not each.is_over and (each.kind, each.bookies) == asked for each in self._kept):
            return PlainTextResponse(answer)
        if len(self._waiting) >= WAITING_MAX:
            text = f"{WAITING_MAX} requests are waiting: see /api/v1/autorecovery/removals, and ask again later"
            return PlainTextResponse(text, status_code=503)
        self._kept.append(removal)
        self._waiting.append(removal)
        if not self._is_working:
            self._is_working = True
            self._nursery.start_soon(self._work, name="removal of bookies")
        return PlainTextResponse(answer)

    # --- the work

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._do(self._waiting.popleft())
        finally:
            self._is_working = False

    async def _do(self, removal: Removal) -> None:
        removal.state = "working"
        named = ", ".join(removal.bookies)
        log.info("removal of bookies began", kind=removal.kind, bookies=named)
        try:
            await (self._recover(removal) if removal.kind == "recover" else self._decommission(removal))
            if removal.reason:
                removal.state = "failed"
            else:
                if removal.deletes_cookie:
                    for each in removal.bookies:
                        await forget_cookie(self._store, each, root=self._root)
                removal.state = "done"
        except (RemovalRefusedError, NoAuditorError) as error:
            removal.state, removal.reason = "refused", str(error)
        except (MetadataError, LedgerError, AutoRecoveryError, ConfigError) as error:
            removal.state, removal.reason = "failed", str(error) or type(error).__name__
        if removal.reason:
            log.warning("bookies not removed", kind=removal.kind, bookies=named, reason=removal.reason)
        else:
            log.info("removal of bookies ended", kind=removal.kind, bookies=named, ledgers=removal.done)

    async def _decommission(self, removal: Removal) -> None:
        decommission = Decommission(
            self._store, await self._manager(), self._marks, removal.bookies[0], root=self._root
        )
        left = await decommission.check()
        removal.ledgers = len(left)

        def copied(count: int) -> None:
            removal.done = count

        await decommission.wait(left, copied)

    async def _recover(self, removal: Removal) -> None:
        unreadable = 0

        def note(ledger_id: int, error: str) -> None:
            nonlocal unreadable
            unreadable += 1
            if unreadable <= NAMED_MAX:
                log.warning("metadata of a ledger cannot be read", ledger=ledger_id, reason=error)

        async with self._open_repair() as (client, config):
            password, digest_type = config.password.encode(), DIGEST_TYPES[config.digest_type]
            checker = LedgerChecker(client, rng=self._rng, password=password, digest_type=digest_type)
            rate = Throttle(config.rate_bytes)
            replicator = Replicator(client, checker, throttle=rate, batch_entries=config.batch_entries)
            recovery = BookieRecovery(
                client, checker, replicator, removal.bookies, password=password, digest_type=digest_type
            )
            found = await concerned_ledgers(await self._manager(), recovery, note)
            plans = [recovery.plan(ledger_id, metadata) for ledger_id, metadata in found.items()]
            outcome = await self._recover_all(removal, recovery, plans)
        if outcome.left or unreadable:
            more = f", the metadata of {unreadable} cannot be read" if unreadable else ""
            removal.reason = f"{outcome.summary()}{more}; see the log"

    async def _recover_all(
        self, removal: Removal, recovery: BookieRecovery, plans: Sequence[LedgerPlan]
    ) -> RecoveryOutcome:
        outcome = RecoveryOutcome(len(plans))
        removal.ledgers = len(plans)

        def recovered(plan: LedgerPlan, copied: Copied) -> None:
            removal.done = outcome.recovered + outcome.gone

        def failed(plan: LedgerPlan, error: LedgerError) -> None:
            if outcome.left.total() <= NAMED_MAX:
                log.warning(
                    "ledger cannot be recovered", ledger=plan.ledger_id, reason=str(error), remedy=remedy(error)
                )

        await recover_ledgers(recovery, plans, outcome, recovered=recovered, failed=failed)
        removal.done = outcome.recovered + outcome.gone
        return outcome

    async def _manager(self) -> LedgerManager:
        layout = await read_layout(self._store, self._root)
        ids = SequenceLedgerIds(self._store, self._root, layout=layout)
        return LedgerManager(self._store, ids=ids, rng=self._rng, root=self._root, layout=layout)

    def routes(self) -> list[Route]:
        base = "/api/v1/autorecovery"
        methods = {name: self.recover for name in ("GET", "PUT", "POST", "DELETE")}  # (the body is looked at first)
        return [
            original_route(f"{base}/bookie", (), **methods),
            original_route(f"{base}/decommission", (), PUT=self.decommission),
            original_route(f"{base}/removals", (), GET=self.removals),
        ]


def _recovery_of(body: bytes) -> tuple[tuple[str, ...], bool]:
    """Return the bookies, each once, and whether their cookies are deleted. ValueError, InvalidPathError."""
    asked = decoded(body)
    if not isinstance(asked, dict):
        raise ValueError("an object is expected")
    _check_names(asked)
    named, deletes = asked.get("bookie_src"), asked.get("delete_cookie", False)
    if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
        raise ValueError("bookie_src must be a list of ids of bookies")
    if not isinstance(deletes, bool):
        raise ValueError("delete_cookie must be true or false")
    return tuple(dict.fromkeys(check_bookie_id(each) for each in named)), deletes


def _check_names(asked: dict[str, Any]) -> None:
    unknown = sorted(set(asked) - {"bookie_src", "delete_cookie"})
    if unknown:
        raise ValueError(f"unknown: {', '.join(unknown)}")
