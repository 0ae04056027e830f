"""How far a ledger is confirmed, asked of its last ensemble; and asking bookies patiently.

Source: BookKeeper's ReadLastConfirmedOp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from quire.ledger.bookie_client import Answer, Body, take_answers
from quire.ledger.context import LedgerContext
from quire.ledger.errors import BookieUnavailableError, LedgerRecoveryError, LedgerUnauthorizedError, rc_name
from quire.ledger.recovery_rules import FenceCoverage
from quire.ledger.striping import Striping
from quire.metadata.ledgers import LedgerMetadata
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Digest, EntryHeader, master_key, read_header
from quire.wire.bookkeeper.errors import BookkeeperWireError
from quire.wire.bookkeeper.v2 import Rc

LAST_ENTRY = -1


@dataclass(frozen=True, slots=True)
class LastConfirmed:
    """What the bookies of the last ensemble know. `lac` -1 for none; `length` in payload bytes, of about that entry."""

    lac: int
    length: int


def open_last(digest: Digest, ledger_id: int, entry: memoryview) -> EntryHeader | None:
    """The header of a valid entry of the ledger, whichever it is; None if it is not valid."""
    try:
        header = read_header(entry)
        digest.open(ledger_id, header.entry_id, entry)
    except BookkeeperWireError:
        return None
    return header


def ask(
    context: LedgerContext, bookie_id: str, ledger_id: int, entry_ids: Sequence[int], flags: int, key: bytes
) -> list[Answer]:
    """Read requests to one bookie; those to a bookie that cannot be reached are answered so."""
    try:
        connection = context.bookies.connection(bookie_id)
    except BookieUnavailableError as error:
        answers = [Answer(0) for _ in entry_ids]
        for answer in answers:
            answer.settle(error)
        return answers
    return connection.read(ledger_id, entry_ids, flags, key if flags & v2.DO_FENCING else None)


async def take_patiently(
    context: LedgerContext,
    answers: Sequence[Answer],
    ask_again: Callable[[int], Answer],
    take: Callable[[int, Body | BookieUnavailableError], bool],
) -> None:
    """As `take_answers`, but bookies that have too much to do are asked again, with growing pauses, until the read timeout."""
    config = context.config
    give_up_at = trio.current_time() + config.read_timeout_s
    pause = config.retry_pause_s
    asked = dict(enumerate(answers))
    enough = False
    while asked and not enough:
        places = list(asked)
        busy: list[int] = []
        last_try = trio.current_time() + pause > give_up_at

        def take_or_wait(
            number: int,
            outcome: Body | BookieUnavailableError,
            places: list[int] = places,
            busy: list[int] = busy,
            last_try: bool = last_try,
        ) -> bool:
            nonlocal enough
            refused = not isinstance(outcome, BookieUnavailableError) and outcome.rc == Rc.TOO_MANY_REQUESTS
            if refused and not last_try:
                busy.append(places[number])
            else:
                enough = take(places[number], outcome)
            return enough

        await take_answers(list(asked.values()), take_or_wait)
        if busy and not enough:
            await trio.sleep(pause)
            pause = min(2 * pause, config.retry_pause_max_s)
            asked = {place: ask_again(place) for place in busy}
        else:
            asked = {}


async def read_last_confirmed(
    context: LedgerContext, ledger_id: int, metadata: LedgerMetadata, digest: Digest, password: bytes, *, fence: bool
) -> LastConfirmed:
    """The last add confirmed, as far as the last ensemble knows; with `fence` the old writer can confirm nothing more.

    LedgerUnauthorizedError at the first bookie that says so; LedgerRecoveryError without coverage.
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

    answers = [ask_again(index) for index in range(len(fragment.bookies))]
    await take_patiently(context, answers, ask_again, take)
    if refused:
        raise LedgerUnauthorizedError(f"ledger {ledger_id} has another password: {'; '.join(causes)}")
    if not coverage.covered:
        raise LedgerRecoveryError(f"too few bookies of ledger {ledger_id} answered: {'; '.join(causes)}")
    return best
