"""Updates of a ledger's metadata. The rules are pure: each gets the stored value and returns the wanted one, None if
the stored one is right, or raises an error. `update` applies a rule to the store.

Source: BookKeeper's EnsembleUtils, LedgerHandle.doAsyncCloseInternal, ReadOnlyLedgerHandle.closeRecovered,
LedgerFragmentReplicator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import trio

from quire.ledger.context import LedgerContext
from quire.ledger.errors import (
    FragmentChangedError,
    LedgerClosedError,
    LedgerConflictError,
    LedgerFencedError,
    LedgerRecoveryError,
    NoSuchLedgerError,
)
from quire.metadata.errors import MetadataUnavailableError, NoNodeError
from quire.metadata.ledgers import Fragment, LedgerMetadata, LedgerState
from quire.metadata.store import Versioned

Rule: TypeAlias = Callable[[LedgerMetadata], LedgerMetadata | None]

FIRST_PAUSE_S = 0.05


def with_ensemble(fragments: Sequence[Fragment], first: int, ensemble: Sequence[str]) -> tuple[Fragment, ...]:
    """Return the fragments with `ensemble` holding the entries from `first` on."""
    kept = fragments[:-1] if fragments[-1].first_entry_id == first else fragments
    return (*kept, Fragment(first, tuple(ensemble)))


def with_repairs(fragments: Sequence[Fragment], stored: LedgerMetadata) -> tuple[Fragment, ...]:
    """Return a writer's fragments with repairs of complete fragments taken from `stored`.

    All of `stored` is returned if another client closed the ledger. Only its writer changes the last fragment of an
    open ledger, and may have a newer state of it.
    """
    if stored.state is LedgerState.CLOSED:
        return stored.fragments
    found = {each.first_entry_id: each for each in stored.fragments[:-1]}
    return (*[found.get(each.first_entry_id, each) for each in fragments[:-1]], fragments[-1])


def replace_failed(
    stored: LedgerMetadata, first: int, failed: Mapping[int, str], ensemble: Sequence[str]
) -> LedgerMetadata | None:
    """Rule of a writer's ensemble change: replace each bookie of `failed` (by index) that is still a member by the one
    of `ensemble`, from entry `first` on.

    None if other clients have replaced them all: adopt the stored fragments. LedgerClosedError, LedgerFencedError.
    """
    if stored.state is LedgerState.CLOSED:
        raise LedgerClosedError("the ledger was closed before its ensemble could be changed")
    if stored.state is LedgerState.IN_RECOVERY:
        raise LedgerFencedError("the ledger is being recovered: another client has taken it over")
    bookies = list(stored.fragments[-1].bookies)
    changed = False
    for index, bookie_id in failed.items():
        if bookies[index] == bookie_id and ensemble[index] not in bookies:
            bookies[index] = ensemble[index]
            changed = True
    return replace(stored, fragments=with_ensemble(stored.fragments, first, bookies)) if changed else None


def close(stored: LedgerMetadata, last: int, length: int) -> LedgerMetadata | None:
    """Rule of a writer's close at its last confirmed entry. LedgerConflictError if it is closed at another one.

    It overrides a recovery in progress, which then adopts it: every confirmed entry is below, and the writer has
    abandoned the rest.
    """
    if stored.state is not LedgerState.CLOSED:
        return replace(stored, state=LedgerState.CLOSED, last_entry_id=last, length=length)
    if (stored.last_entry_id, stored.length) == (last, length):
        return None
    raise LedgerConflictError(
        f"the ledger was closed by another client at entry {stored.last_entry_id}, {stored.length} bytes; "
        f"this writer is at {last}, {length} bytes"
    )


def begin_recovery(stored: LedgerMetadata) -> LedgerMetadata | None:
    """Rule of a recovery's start: None if the ledger is closed, or in recovery already."""
    return replace(stored, state=LedgerState.IN_RECOVERY) if stored.state is LedgerState.OPEN else None


def end_recovery(
    stored: LedgerMetadata, started: LedgerMetadata, fragments: tuple[Fragment, ...], last: int, length: int
) -> LedgerMetadata | None:
    """Rule of a recovery's close, with the ensembles it changed since `started`.

    None if another client closed the ledger: adopt that.

    Fragments before the last one of `started` may have been repaired in the meantime: the stored ones are kept.
    """
    if stored.state is LedgerState.CLOSED:
        return None
    if stored.state is LedgerState.OPEN:
        raise LedgerRecoveryError("the ledger was opened again during its recovery")
    if fragments != started.fragments:
        before = len(started.fragments) - 1
        fragments = (*stored.fragments[:before], *fragments[before:])
    else:
        fragments = stored.fragments
    return replace(stored, state=LedgerState.CLOSED, last_entry_id=last, length=length, fragments=fragments)


def replace_members(
    stored: LedgerMetadata, first: int, last: int, members: Mapping[int, tuple[str, str]]
) -> LedgerMetadata | None:
    """Rule of a repair: in the closed fragment of entries `first` to `last`, replace members by index, (old, new).

    The new member has the copies of the old one. None if that was done already. FragmentChangedError if the fragment
    has other entries or members.
    """
    place = next((i for i, each in enumerate(stored.fragments) if each.first_entry_id == first), None)
    if place is None:
        raise FragmentChangedError(f"no fragment begins at entry {first} any more")
    closed_at = stored.last_entry_id if stored.state is LedgerState.CLOSED else None
    following = stored.fragments[place + 1 :]
    end = following[0].first_entry_id - 1 if following else closed_at
    if end != last:
        raise FragmentChangedError(f"the fragment of entry {first} ends at {end}, not at {last}")
    bookies = list(stored.fragments[place].bookies)
    for index, (old, new) in members.items():
        if bookies[index] not in (old, new):
            raise FragmentChangedError(
                f"{bookies[index]} has taken the place of {old} in the fragment of entry {first}"
            )
        bookies[index] = new
    if tuple(bookies) == stored.fragments[place].bookies:
        return None
    if len(set(bookies)) < len(bookies):
        raise FragmentChangedError(f"a newcomer is in the fragment of entry {first} already")
    fragment = Fragment(first, tuple(bookies))
    return replace(stored, fragments=(*stored.fragments[:place], fragment, *following))


def add_members(
    stored: LedgerMetadata, known: LedgerMetadata, ensembles: Mapping[int, tuple[str, ...]], ack_quorum: int
) -> LedgerMetadata | None:
    """Rule of more copies: the fragments of a closed ledger get further members, with which all members have all
    entries.

    `ensembles`: the members by first entry, the present ones first. None if that was done already. FragmentChangedError
    if the ledger is not `known` any more.
    """
    fragments = tuple(Fragment(first, members) for first, members in ensembles.items())
    if stored.fragments == fragments:
        return None
    if stored.state is not LedgerState.CLOSED or stored.fragments != known.fragments:
        raise FragmentChangedError("the members of the ledger have changed in the meantime")
    (size,) = {len(members) for members in ensembles.values()}
    return replace(stored, ensemble_size=size, write_quorum=size, ack_quorum=ack_quorum, fragments=fragments)


async def update(
    context: LedgerContext, ledger_id: int, rule: Rule, known: Versioned[LedgerMetadata] | None = None
) -> Versioned[LedgerMetadata]:
    """Change the stored metadata by the rule, again after each lost race; return it as stored afterwards.

    `known`: the value believed to be stored, which saves the first read. While the store is unavailable the rule is
    tried again, a limited number of times; it must recognise its own work. Errors of the rule, NoSuchLedgerError,
    MetadataError.
    """
    pause = FIRST_PAUSE_S
    for attempt in range(1, context.config.metadata_attempts + 1):
        try:
            return await context.ledgers.update(ledger_id, rule, known)
        except NoNodeError as error:
            raise NoSuchLedgerError(f"ledger {ledger_id} has no metadata") from error
        except MetadataUnavailableError:
            if attempt == context.config.metadata_attempts:
                raise
        known = None
        await trio.sleep(pause)
        pause *= 2
    raise AssertionError("unreachable: the last attempt returns or raises")
