"""Errors of ledgers. Each class says whether a retry can help, and what to do.

`code` is the number that BookKeeper's client gives the same failure, for operators and tools that know those numbers.
Source: BookKeeper's BKException.Code.

Calls that use metadata also raise `quire.metadata.errors.MetadataError`: failures of the metadata store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from quire.wire.bookkeeper.v2 import Rc


class LedgerError(Exception):
    """Root of all errors of this package."""

    passing: ClassVar[bool] = False
    """Mark of errors after which the same call may succeed: those of a class whose docstring says "Passing"."""

    code: int = -999


class IncorrectParameterError(LedgerError):
    """The arguments contradict each other, such as an ack quorum above the write quorum. Final; nothing was done."""

    code = -14


class IllegalOperationError(LedgerError):
    """The ledger or the protocol does not allow this call. Final for the call; nothing was done."""

    code = -100


class ClientClosedError(LedgerError):
    """The ledger client was closed. Final: open another one."""

    code = -19


class NotEnoughBookiesError(LedgerError):
    """Fewer bookies are available than the ledger needs.

    Passing: try again when bookies are back, with a new ledger.
    """

    passing = True

    code = -6


class PlacementPolicyError(LedgerError):
    """The placement policy cannot be loaded or created, does not fit the quorums, or gave an invalid answer.

    Final: correct ensemblePlacementPolicy and its settings, or the policy.
    """


class NoSuchLedgerError(LedgerError):
    """The ledger has no metadata: never created, or deleted. Final."""

    code = -25


class LedgerExistsError(LedgerError):
    """The chosen id belongs to another ledger. Final for the id; nothing was done."""

    code = -20


class LedgerFencedError(LedgerError):
    """Another client has taken the ledger over. Final: reopen the log, do not retry."""

    code = -101


class LedgerClosedError(LedgerError):
    """The ledger, or this handle to it, is closed. Final for the handle: continue with a new ledger."""

    code = -11


class LedgerConflictError(LedgerError):
    """Another client closed the ledger at another last entry.

    Final: the stored metadata is right, reopen the ledger.
    """

    code = -17


class LedgerUnauthorizedError(LedgerError):
    """The password or the digest type is not the ledger's. Final: wrong configuration, or a foreign ledger."""

    code = -102


class LedgerWriteError(LedgerError):
    """The writer cannot continue.

    Final for the writer: close it at its last confirmed entry and write the rest elsewhere.
    """

    code = -12


class AddQuorumTimeoutError(LedgerWriteError):
    """An entry did not reach its ack quorum within the configured time. Final for the writer, as any write error."""

    code = -21


class DuplicateEntryError(LedgerError):
    """The application used an entry id twice. Final for those entries, none of which was sent; the writer continues."""

    code = -22


class EntryTooLargeError(LedgerError):
    """The entry does not fit into a frame that bookies accept (`LedgerConfig.frame_max`).

    Final for the entry; nothing was written.
    """

    code = -14


class TooManyPendingError(LedgerError):
    """More bytes are pending than `LedgerConfig.pending_bytes_max`.

    Passing: nothing of this append was sent, the writer continues.

    Wait with `wait_room`, then append again.
    """

    passing = True

    code = -105


class LedgerReadError(LedgerError):
    """No copy of an entry could be read, and it is not known to be missing. Passing: bookies may come back."""

    passing = True

    code = -1


class NoSuchEntryError(LedgerReadError):
    """All bookies that should have the entry answered that they do not. Final for confirmed entries: data is lost."""

    passing = False

    code = -13


class NoCopyLeftError(LedgerReadError):
    """No bookie that should have the entry has it, and some of them have lost data (they are in limbo), so it may have
    been written. Final for confirmed entries, unless a lost disk is brought back.
    """

    passing = False

    code = -108


class DigestMismatchError(LedgerReadError):
    """No copy could be read, and at least one was damaged. Final unless other bookies come back."""

    passing = False

    code = -5


class LedgerRecoveryError(LedgerError):
    """Recovery could not determine the end of the ledger.

    Passing: the ledger stays in recovery; open it again later.
    """

    passing = True

    code = -10


class FragmentChangedError(LedgerError):
    """Another client changed a fragment during its repair. Passing: read the metadata again and plan again."""

    passing = True

    code = -200


class BookieError(LedgerError):
    """A bookie failed a request. Passing for the ledger: other bookies hold the other copies."""

    passing = True


class BookieUnavailableError(BookieError):
    """The connection to a bookie could not be opened, or broke. Pending requests have an unknown outcome."""

    code = -8


class BookieTimeoutError(BookieUnavailableError):
    """A bookie did not answer in time. The outcome is unknown."""

    code = -23


class BookieProtocolError(BookieUnavailableError):
    """A bookie sent an answer to nothing that was asked. The connection is closed."""


class BookieRefusedError(BookieError):
    """A bookie answered with a result code other than OK."""

    def __init__(self, message: str, rc: int) -> None:
        super().__init__(message)
        self.rc = rc
        self.code = CODES.get(rc, -1)


CODES: Mapping[int, int] = {
    Rc.OK: 0,
    Rc.NO_LEDGER: -7,
    Rc.NO_ENTRY: -13,
    Rc.BAD_VERSION: -16,
    Rc.UNAUTHORIZED: -102,
    Rc.FENCED: -101,
    Rc.READ_ONLY: -104,
    Rc.TOO_MANY_REQUESTS: -105,
    Rc.UNKNOWN_LEDGER_STATE: -108,
}
"""BookKeeper client codes for a bookie's result codes. Source: BookKeeper's PerChannelBookieClient."""


def rc_name(rc: int) -> str:
    """Return the name of a result code of the bookie protocol, or its number.

    >>> rc_name(104), rc_name(9999)
    ('FENCED', '9999')
    """
    try:
        return Rc(rc).name
    except ValueError:
        return str(rc)
