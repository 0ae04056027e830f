"""Creation of a ledger: valid arguments, and ids chosen by the caller.

Source: BookKeeper's LedgerCreateOp, CreateBuilderImpl.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import trio

from quire.ledger.context import LedgerContext
from quire.ledger.errors import (
    BookieUnavailableError,
    ClientClosedError,
    IncorrectParameterError,
    LedgerExistsError,
    NotEnoughBookiesError,
)
from quire.metadata.layouts import LONG_ID_LIMIT
from quire.metadata.ledgers import Fragment, LedgerManager, LedgerMetadata
from quire.metadata.store import Op
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import DigestType

PROBE_S: Final = 2.0
"""Seconds within which a doubtful bookie must answer to be part of a new ledger."""
ENSEMBLES_KEPT_MAX: Final = 256
PROBED_LEDGER: Final = LONG_ID_LIMIT - 1
"""Id of a ledger that does not exist: the answer of the bookie does not matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLedger:
    """Arguments of a creation. IncorrectParameterError if they contradict each other."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    digest_type: DigestType
    password: bytes
    custom_metadata: tuple[tuple[str, bytes], ...]
    ledger_id: int | None

    def __post_init__(self) -> None:
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum > 0:
            raise IncorrectParameterError(
                f"a ledger cannot have ensemble {self.ensemble_size}, write quorum {self.write_quorum} and ack quorum"
                f" {self.ack_quorum}: E >= Qw >= Qa > 0"
            )
        if self.ledger_id is not None and not 0 <= self.ledger_id <= v2.ID_MAX:
            raise IncorrectParameterError(f"{self.ledger_id} is no ledger id: 0 to {v2.ID_MAX} are")
        names = [name for name, _ in self.custom_metadata]
        if len(set(names)) != len(names):
            raise IncorrectParameterError(f"custom metadata contains a name twice: {', '.join(names)}")


class GivenLedgerId:
    """Id source with one id, chosen by the caller, for a manager that asks for the next one.

    A second request means that the id is in use.
    """

    def __init__(self, ledger_id: int) -> None:
        self._ledger_id = ledger_id
        self._given = False

    async def next_id(self) -> int:
        """Return the id; LedgerExistsError the second time."""
        if self._given:
            raise LedgerExistsError(f"there already is a ledger {self._ledger_id} already")
        self._given = True
        return self._ledger_id


class GivenIdManager(LedgerManager):
    """Ledger manager that gives the next new ledger a chosen id."""

    def __init__(self, manager: LedgerManager, ledger_id: int) -> None:
        super().__init__(
            manager._store, ids=GivenLedgerId(ledger_id), rng=manager._rng, root=manager.root, layout=manager.layout
        )


@lru_cache(ENSEMBLES_KEPT_MAX)
def _first_fragments(ensemble: tuple[str, ...]) -> tuple[Fragment, ...]:
    """Return the fragments, sharing one object among ledgers on the same bookies: there may be tens of thousands of
    them, and few ensembles.
    """
    return (Fragment(0, ensemble),)


async def create(
    context: LedgerContext, wanted: NewLedger, also: Callable[[int], Sequence[Op]]
) -> tuple[int, LedgerMetadata]:
    """Choose an ensemble and store the metadata of a new, open ledger; return its id and metadata.

    Raises: ClientClosedError, NotEnoughBookiesError, PlacementPolicyError, LedgerExistsError, MetadataError.
    """
    with context.stats.creates.timed():
        ledger_id, metadata = await _create(context, wanted, also)
    context.stats.members.update(metadata.fragments[0].bookies)
    return ledger_id, metadata


async def _create(
    context: LedgerContext, wanted: NewLedger, also: Callable[[int], Sequence[Op]]
) -> tuple[int, LedgerMetadata]:
    if context.bookies.closed:
        raise ClientClosedError("the ledger client is closed")
    ensemble = await _ensemble(context, wanted)
    metadata = LedgerMetadata(
        ensemble_size=len(ensemble),
        write_quorum=wanted.write_quorum,
        ack_quorum=wanted.ack_quorum,
        fragments=_first_fragments(ensemble),
        digest_type=wanted.digest_type,
        password=wanted.password,
        custom_metadata=wanted.custom_metadata,
    )
    manager = context.ledgers if wanted.ledger_id is None else GivenIdManager(context.ledgers, wanted.ledger_id)
    ledger_id, _ = await manager.create(metadata, also=also)
    return ledger_id, metadata


async def _ensemble(context: LedgerContext, wanted: NewLedger) -> tuple[str, ...]:
    """Choose bookies that are registered, and answer if that is in doubt.

    NotEnoughBookiesError before anything is stored.

    A dead bookie is registered until its session expires, and would cost the ledger an ensemble change, or the ledger
    itself. Bookies that were unreachable a moment ago are asked only if there are not enough others.
    """
    choose = partial(
        context.placement.new_ensemble,
        wanted.ensemble_size,
        wanted.write_quorum,
        wanted.ack_quorum,
        custom_metadata=wanted.custom_metadata,
    )
    spared = context.health.unreachable()
    silent: frozenset[str] = frozenset()
    while True:
        try:
            with context.stats.ensembles.timed():
                ensemble = choose(exclude=spared | silent)
        except NotEnoughBookiesError as error:
            if spared <= silent:
                if not silent:
                    raise
                names = ", ".join(sorted(silent))
                raise NotEnoughBookiesError(f"{error}; registered, and cannot be reached: {names}") from error
            spared = frozenset()
            continue
        lost = await _silent(context, [each for each in ensemble if context.health.is_doubtful(each)])
        if not lost:
            return ensemble
        silent |= lost


async def _silent(context: LedgerContext, bookies: Sequence[str]) -> frozenset[str]:
    """Return those of the bookies that do not answer now."""
    if not bookies:
        return frozenset()
    silent = set(bookies)

    async def ask(bookie_id: str) -> None:
        text = f"bookie {bookie_id} does not answer"
        try:
            with trio.move_on_after(PROBE_S):
                await context.bookies.connection(bookie_id).read(PROBED_LEDGER, [0])[0].wait()
                silent.discard(bookie_id)
        except BookieUnavailableError as error:
            text = str(error)
        if bookie_id in silent:
            context.health.failed(bookie_id, BookieUnavailableError(text))
        else:
            context.health.reached(bookie_id)

    async with trio.open_nursery() as nursery:
        for bookie_id in bookies:
            nursery.start_soon(ask, bookie_id, name=f"does {bookie_id} answer")
    return frozenset(silent)
