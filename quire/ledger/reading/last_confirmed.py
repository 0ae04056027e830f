"""Queries of a ledger's last confirmed entry to its last ensemble, with retries.

    read_last_confirmed     by the last entry of each bookie (read -1), optionally fencing; recovery begins with it
    ask_last_confirmed      by READ_LAC: the greater of the explicit LAC and that of the last entry, for readers

Both need answers from so many bookies that no write set can hide a confirmed entry: see `FenceCoverage`.

Source: BookKeeper's ReadLastConfirmedOp, PendingReadLacOp, TryReadLastConfirmedOp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import trio

from quire.ledger.bookies.pool import Answer, Body, failed
from quire.ledger.context import LedgerContext
from quire.ledger.errors import (
    BookieUnavailableError,
    LedgerReadError,
    LedgerRecoveryError,
    LedgerUnauthorizedError,
    rc_name,
)
from quire.ledger.recovery.rules import FenceCoverage
from quire.ledger.striping import Striping
from quire.metadata.ledgers import LedgerMetadata
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.entry import Digest, EntryHeader, master_key, read_header
from quire.wire.bookkeeper.errors import BookkeeperWireError
from quire.wire.bookkeeper.v2 import Rc

LAST_ENTRY = -1


@dataclass(frozen=True, slots=True)
class LastConfirmed:
    """Answer of the last ensemble. `lac` -1 for none; `length` in payload bytes, at about that entry."""

    lac: int
    length: int


def open_last(digest: Digest, ledger_id: int, entry: memoryview) -> EntryHeader | None:
    """Return the header of a valid entry of the ledger; None if it is not valid."""
    try:
        header = read_header(entry)
        digest.open(ledger_id, header.entry_id, entry)
    except BookkeeperWireError:
        return None
    return header


def ask(
    context: LedgerContext, bookie_id: str, ledger_id: int, entry_ids: Sequence[int], flags: int, key: bytes
) -> list[Answer]:
    """Send read requests to one bookie; if it cannot be reached they are answered with that error."""
    try:
        connection = context.bookies.connection(bookie_id)
    except BookieUnavailableError as error:
        return [failed(error) for _ in entry_ids]
    return connection.read(ledger_id, entry_ids, flags, key if flags & v2.DO_FENCING else None)


def ignore_lost(place: int, error: BookieUnavailableError) -> None:
    """Default for `lost`: does nothing."""


async def take_patiently(
    context: LedgerContext,
    answers: Sequence[Answer],
    ask_again: Callable[[int], Answer],
    take: Callable[[int, Body | BookieUnavailableError], bool],
    lost: Callable[[int, BookieUnavailableError], None] = ignore_lost,
) -> None:
    """Pass outcomes to `take(place, outcome)` as they arrive, each place once, until it returns True or all have
    arrived.

    Two kinds of bookies are asked again, with growing pauses, until the read timeout: overloaded ones, and unreachable
    ones while an answer of another bookie is still pending, since that one may hang while they are starting. `lost` is
    called for the latter at once, perhaps more than once.
    """
    config = context.config
    give_up_at = trio.current_time() + config.read_timeout_s
    backoff = context.backoff()
    pause_s = backoff.next()
    waiting = dict(enumerate(answers))
    last: dict[int, Body | BookieUnavailableError] = {}
    """Last outcome of the places that are asked again."""
    again_at = inf
    while True:
        came = trio.Event()
        for place, answer in list(waiting.items()):
            outcome = answer.outcome
            if outcome is None:
                answer.notify = came.set
                continue
            del waiting[place]
            if isinstance(outcome, BookieUnavailableError):
                lost(place, outcome)
            if type(outcome) is BookieUnavailableError or _is_busy(outcome):
                last[place] = outcome
            else:
                last.pop(place, None)
                if take(place, outcome):
                    return
        hopeful = not waiting.keys() <= last.keys() or any(map(_is_busy, last.values()))
        now = trio.current_time()
        late = now + pause_s > give_up_at
        if not hopeful or (late and not waiting):
            for place, outcome in last.items():
                if take(place, outcome):
                    return
            return
        idle = last.keys() - waiting.keys()
        if not idle or late:
            again_at = inf
        elif again_at == inf:
            again_at = now + pause_s
        elif now >= again_at:
            waiting |= {place: ask_again(place) for place in last if place in idle}
            pause_s, again_at = backoff.next(), inf
            continue
        with trio.move_on_at(again_at):
            await came.wait()


def _is_busy(outcome: Body | BookieUnavailableError) -> bool:
    return not isinstance(outcome, BookieUnavailableError) and outcome.rc == Rc.TOO_MANY_REQUESTS


async def read_last_confirmed(
    context: LedgerContext, ledger_id: int, metadata: LedgerMetadata, digest: Digest, password: bytes, *, fence: bool
) -> LastConfirmed:
    """Return the last add confirmed known to the last ensemble; with `fence` the old writer can confirm no more
    entries.

    LedgerUnauthorizedError as soon as one bookie answers it; LedgerRecoveryError without coverage.
    """
    fragment = metadata.fragments[-1]
    coverage = FenceCoverage(Striping(metadata.ensemble_size, metadata.write_quorum), metadata.ack_quorum)
    best = LastConfirmed(fragment.first_entry_id - 1, 0)
    best_seen = -1
    causes: list[str] = []
    refused = False

    def take(index: int, outcome: Body | BookieUnavailableError) -> bool:
        nonlocal best, best_seen, refused
        bookie_id = fragment.bookies[index]
        if isinstance(outcome, BookieUnavailableError):
            causes.append(f"{bookie_id}: {outcome}")
        elif outcome.rc == Rc.OK and isinstance(outcome, v2.ReadResponse):
            header = open_last(digest, ledger_id, outcome.entry)
            if header is None:
                causes.append(f"{bookie_id}: the digest does not match")
                return False
            coverage.answered(index)
            if header.lac > best_seen or not best.length:
                best_seen = max(best_seen, header.lac)
                best = LastConfirmed(max(best.lac, header.lac), header.length)
        elif outcome.rc in (Rc.NO_ENTRY, Rc.NO_LEDGER):
            coverage.answered(index)
        else:
            causes.append(f"{bookie_id}: {rc_name(outcome.rc)}")
            refused = outcome.rc == Rc.UNAUTHORIZED
        return refused or coverage.covered

    key = master_key(password)
    flags = v2.DO_FENCING if fence else 0

    def ask_again(index: int) -> Answer:
        return ask(context, fragment.bookies[index], ledger_id, [LAST_ENTRY], flags, key)[0]

    def lost(index: int, error: BookieUnavailableError) -> None:
        context.health.failed(fragment.bookies[index], error)

    answers = [ask_again(index) for index in range(len(fragment.bookies))]
    await take_patiently(context, answers, ask_again, take, lost)
    if refused:
        raise LedgerUnauthorizedError(f"ledger {ledger_id} has another password: {'; '.join(causes)}")
    if not coverage.covered:
        raise LedgerRecoveryError(f"too few bookies of ledger {ledger_id} answered: {'; '.join(causes)}")
    return best


class LacAnswers:
    """Answers of the last ensemble to READ_LAC. Pure."""

    def __init__(self, ledger_id: int, metadata: LedgerMetadata, digest: Digest) -> None:
        self._ledger_id = ledger_id
        self._digest = digest
        self._bookies = metadata.fragments[-1].bookies
        self._coverage = FenceCoverage(Striping(metadata.ensemble_size, metadata.write_quorum), metadata.ack_quorum)
        self.best = LastConfirmed(metadata.fragments[-1].first_entry_id - 1, 0)
        self.causes: list[str] = []
        """Reasons why bookies do not count."""
        self.answered = 0
        self.unauthorized = False

    @property
    def covered(self) -> bool:
        """Return whether every entry confirmed before the request is on at least one bookie that answered."""
        return self._coverage.covered

    def take(self, index: int, outcome: Body | BookieUnavailableError) -> None:
        """Take the answer of the bookie at `index`. If a part is damaged, only the other part counts."""
        if isinstance(outcome, v3.LacAnswer) and (outcome.rc == Rc.OK or outcome.explicit_lac_body):
            # (Without a last entry the original answers IO, but sends the explicit LAC.)
            if not self._explicit(outcome.explicit_lac_body) or not self._last_entry(outcome.last_entry):
                self.causes.append(f"{self._bookies[index]}: the digest does not match")
                return
        elif isinstance(outcome, BookieUnavailableError):
            self.causes.append(f"{self._bookies[index]}: {outcome}")
            return
        elif outcome.rc not in (Rc.NO_ENTRY, Rc.NO_LEDGER):
            self.causes.append(f"{self._bookies[index]}: {rc_name(outcome.rc)}")
            self.unauthorized = self.unauthorized or outcome.rc == Rc.UNAUTHORIZED
            return
        self.answered += 1
        self._coverage.answered(index)

    def _explicit(self, package: bytes | None) -> bool:
        if package:
            try:
                lac = self._digest.open_lac(self._ledger_id, package)
            except BookkeeperWireError:
                return False
            self.best = LastConfirmed(max(self.best.lac, lac), self.best.length)
        return True

    def _last_entry(self, entry: memoryview | None) -> bool:
        if entry:
            header = open_last(self._digest, self._ledger_id, entry)
            if header is None:
                return False
            self.best = LastConfirmed(max(self.best.lac, header.lac), max(self.best.length, header.length))
        return True


async def ask_last_confirmed(
    context: LedgerContext,
    ledger_id: int,
    metadata: LedgerMetadata,
    digest: Digest,
    *,
    more_than: int | None = None,
) -> LastConfirmed:
    """Return the last add confirmed.

    With `more_than`, the first bookie with a greater one is enough, else the greatest answer counts. Without it, the
    result is no less than what was confirmed before the request. LedgerUnauthorizedError; LedgerReadError if too few
    bookies answered (with `more_than`: none).
    """
    bookies = metadata.fragments[-1].bookies
    answers = LacAnswers(ledger_id, metadata, digest)

    def ask_bookie(index: int) -> Answer:
        try:
            return context.bookies.connection(bookies[index]).read_lac(ledger_id)
        except BookieUnavailableError as error:
            return failed(error)

    def take(index: int, outcome: Body | BookieUnavailableError) -> bool:
        tells_lac = isinstance(outcome, v3.LacAnswer) and outcome.explicit_lac_body
        if not tells_lac and not isinstance(outcome, BookieUnavailableError):
            context.health.refused(bookies[index], outcome.rc)
        answers.take(index, outcome)
        if answers.unauthorized:
            return True
        return answers.covered if more_than is None else answers.best.lac > more_than

    def lost(index: int, error: BookieUnavailableError) -> None:
        context.health.failed(bookies[index], error)

    await take_patiently(context, [ask_bookie(index) for index in range(len(bookies))], ask_bookie, take, lost)
    causes = "; ".join(answers.causes)
    if answers.unauthorized:
        raise LedgerUnauthorizedError(f"ledger {ledger_id} has another password: {causes}")
    if not answers.answered or (more_than is None and not answers.covered):
        raise LedgerReadError(f"too few bookies answered how far ledger {ledger_id} is confirmed: {causes}")
    return answers.best
