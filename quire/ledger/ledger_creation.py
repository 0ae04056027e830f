"""Making a ledger: what may be asked for, and ids that the caller chose.

Source: BookKeeper's LedgerCreateOp, CreateBuilderImpl.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from quire.ledger.context import LedgerContext
from quire.ledger.errors import (
    ClientClosedError,
    IncorrectParameterError,
    LedgerExistsError,
    NotEnoughBookiesError,
)
from quire.metadata.layouts import LONG_ID_LIMIT
from quire.metadata.ledgers import Fragment, LedgerManager, LedgerMetadata
from quire.metadata.store import Op
from quire.wire.bookkeeper.entry import DigestType


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLedger:
    """What a caller wants. IncorrectParameterError if it makes no sense."""

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
        if self.ledger_id is not None and not 0 <= self.ledger_id < LONG_ID_LIMIT:
            raise IncorrectParameterError(f"{self.ledger_id} is no ledger id")
        names = [name for name, _ in self.custom_metadata]
        if len(set(names)) != len(names):
            raise IncorrectParameterError(f"custom metadata has a name twice: {', '.join(names)}")


class GivenLedgerId:
    """One id, of the caller's choice, where a manager asks for the next one. Asked again, it was taken."""

    def __init__(self, ledger_id: int) -> None:
        self._ledger_id = ledger_id
        self._given = False

    async def next_id(self) -> int:
        """LedgerExistsError."""
        if self._given:
            raise LedgerExistsError(f"there is a ledger {self._ledger_id} already")
        self._given = True
        return self._ledger_id


class GivenIdManager(LedgerManager):
    """The ledgers of another manager; the next one made gets the id that was given."""

    def __init__(self, manager: LedgerManager, ledger_id: int) -> None:
        super().__init__(
            manager._store, ids=GivenLedgerId(ledger_id), rng=manager._rng, root=manager.root, layout=manager.layout
        )


async def create(
    context: LedgerContext, wanted: NewLedger, also: Callable[[int], Sequence[Op]]
) -> tuple[int, LedgerMetadata]:
    """Choose an ensemble and store the metadata of a new, open ledger; returns its id and metadata. ClientClosedError,
    NotEnoughBookiesError, PlacementPolicyError, LedgerExistsError, MetadataError."""
    if context.bookies.closed:
        raise ClientClosedError("the ledger client is closed")
    ensemble = _ensemble(context, wanted)
    metadata = LedgerMetadata(
        ensemble_size=len(ensemble),
        write_quorum=wanted.write_quorum,
        ack_quorum=wanted.ack_quorum,
        fragments=(Fragment(0, ensemble),),
        digest_type=wanted.digest_type,
        password=wanted.password,
        custom_metadata=wanted.custom_metadata,
    )
    manager = context.ledgers if wanted.ledger_id is None else GivenIdManager(context.ledgers, wanted.ledger_id)
    ledger_id, _ = await manager.create(metadata, also=also)
    return ledger_id, metadata


def _ensemble(context: LedgerContext, wanted: NewLedger) -> tuple[str, ...]:
    """Without those that could not be reached a moment ago, if there are enough others: they are registered until their sessions
    are over, and each would cost the ledger an ensemble change."""
    choose = partial(
        context.placement.new_ensemble,
        wanted.ensemble_size,
        wanted.write_quorum,
        wanted.ack_quorum,
        custom_metadata=wanted.custom_metadata,
    )
    unreachable = context.health.unreachable()
    if unreachable:
        with suppress(NotEnoughBookiesError):
            return choose(exclude=unreachable)
    return choose()
