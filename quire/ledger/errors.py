"""What can go wrong with a ledger. Each class says final or passing, and what to do.

Calls that touch metadata also let `quire.metadata.errors.MetadataError` through: those failures are the store's.
"""

from __future__ import annotations

from quire.wire.bookkeeper.v2 import Rc


class LedgerError(Exception):
    """Root: catching it catches every failure of the package."""


class NotEnoughBookiesError(LedgerError):
    """Fewer bookies are available than the ledger needs. Passing: try again when bookies are back, with a new ledger."""


class NoSuchLedgerError(LedgerError):
    """The ledger has no metadata: never created, or deleted. Final."""


class LedgerFencedError(LedgerError):
    """Another client has taken the ledger over. Final: reopen the log, do not retry."""


class LedgerClosedError(LedgerError):
    """The ledger, or this handle to it, is closed. Final for the handle: go on with a new ledger."""


class LedgerConflictError(LedgerError):
    """Somebody closed the ledger at another last entry than ours. Final: the stored metadata is right, reopen."""


class LedgerUnauthorizedError(LedgerError):
    """The password or the digest type is not the ledger's. Final; a mistake of the configuration, or a stranger."""


class LedgerWriteError(LedgerError):
    """The writer cannot go on. Final for the writer: close it at its last confirmed entry, send the rest elsewhere."""


class EntryTooLargeError(LedgerError):
    """The entry would not fit a frame of the bookie protocol. Final for the entry; nothing was written."""


class LedgerReadError(LedgerError):
    """No copy of an entry could be read, and it is not known to be missing. Passing: bookies may come back."""


class NoSuchEntryError(LedgerReadError):
    """All bookies that should have the entry answered that they do not. Final for confirmed entries: data was lost."""


class DigestMismatchError(LedgerReadError):
    """No copy could be read, and at least one was damaged. Final unless other bookies come back."""


class LedgerRecoveryError(LedgerError):
    """Recovery could not decide where the ledger ends. Passing: the ledger stays in recovery; open it again later."""


class BookieError(LedgerError):
    """One bookie did not do what it was asked. Passing for the ledger: other bookies hold the other copies."""


class BookieUnavailableError(BookieError):
    """The connection to a bookie could not be made, or broke. What was under way has an unknown outcome."""


class BookieTimeoutError(BookieUnavailableError):
    """A bookie did not answer in time. The outcome is unknown."""


class BookieProtocolError(BookieUnavailableError):
    """A bookie sent what is not an answer to anything asked. The connection is given up."""


class BookieRefusedError(BookieError):
    """A bookie answered with a result code other than OK."""

    def __init__(self, message: str, rc: int) -> None:
        super().__init__(message)
        self.rc = rc


def rc_name(rc: int) -> str:
    """The name of a result code of the bookie protocol, or its number.

    >>> rc_name(104), rc_name(9999)
    ('FENCED', '9999')
    """
    try:
        return Rc(rc).name
    except ValueError:
        return str(rc)
