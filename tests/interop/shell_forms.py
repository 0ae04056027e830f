"""Lines of the shell of BookKeeper 4.18 in the form that 4.17.3 prints, so that one test holds for both versions.

4.18 logs a text and attributes: `bookie {bookieAddr=...}`. The layout in log4j2-shell.xml prints both, and nothing
behind the lines of 4.17.3, which have no attributes. The forms were found by running the commands of both.
"""

from __future__ import annotations

import re
from typing import Final

_HEAD: Final = "--------- Lid={ledgerId}, Eid={entryId},{position} EntrySize={entrySize} ---------"
_FORMS: Final = tuple(
    (re.compile(pattern, re.MULTILINE), form)
    for pattern, form in (
        (r"^log entry \{ledgerId=(\d+), metadata=(LedgerMetadata\{.*\})\}$", r"ledgerID: \1\n\2"),
        (r"^(?:ledgerID|log entry) \{ledgerId=(\d+)\}$", r"ledgerID: \1"),
        (r"^log entry \{metadata=(LedgerMetadata\{.*\})\}$", r"\1"),
        (r"^bookie \{bookieAddr=(.*)\}$", r"\1"),
        (r"^Free disk space info \{bookie=(.*), free=(.*), total=(.*)\}$", r"\1:\tFree: \2\tTotal: \3"),
        (
            r"^Metadata Service Uri: InstanceId \{metadataServiceUriUnchecked=(.*), readInstanceId=(.*)\}$",
            r"Metadata Service Uri: \1 InstanceId: \2",
        ),
        (r"^(\d+ entries written to ledger \d+) \(lastEntryId (\d+)\)$", r"\1. Last entry Id \2"),
        (
            r"^Entry \{entryId=(-?\d+), entrySize=(\d+), ledgerId=(\d+)\}$",
            _HEAD.format(ledgerId=r"\3", entryId=r"\1", position="", entrySize=r"\2"),
        ),
        (
            r"^Entry \{entryId=(-?\d+), entrySize=(\d+), ledgerId=(\d+), position=(\d+)\}$",
            _HEAD.format(ledgerId=r"\3", entryId=r"\1", position=r" ByteOffset=\4,", entrySize=r"\2"),
        ),
    )
)


def as_of_4_17(told: str) -> str:
    r"""Return the output of either version as 4.17.3 prints it; lines of no known form stay as they are.

    >>> as_of_4_17("Entry {entryId=7, entrySize=41, ledgerId=2, position=1024}\nledgerID: 3\nledgerID {ledgerId=4}")
    '--------- Lid=2, Eid=7, ByteOffset=1024, EntrySize=41 ---------\nledgerID: 3\nledgerID: 4'
    """
    for pattern, form in _FORMS:
        told = pattern.sub(form, told)
    return told
