"""Verdicts from the log and the answers of a damaged server (pure)."""

from __future__ import annotations

import re
from typing import Final

from tests.support.damage.places import HARMLESS, Case
from tests.support.damage.verdicts import Verdict

_TROUBLE: Final = re.compile(r"level=(error|warning).*")
_TAIL: Final = "unsynced tail of the journal dropped"


def answer(verdict: Verdict, detail: str) -> dict[str, str]:
    return {"verdict": verdict.name, "detail": detail[:600]}


def refused(case: Case, reason: str) -> dict[str, str]:
    """Return the outcome of a start that was refused with this reason."""
    if case.place.kind.endswith(HARMLESS):
        return answer(Verdict.FALSE, reason)
    folder, _, name = case.place.path.rpartition("/")
    # A file that is missing may be named by what needs it; its folder is named by RocksDB's complaint of a name in it.
    named = name in reason or (folder in reason and folder.endswith(("metadata", "locations", "ledgers")))
    return answer(Verdict.REFUSED if named else Verdict.UNNAMED, reason)


def troubles(log: str) -> list[str]:
    """Return the lines of level warning and error."""
    return _TROUBLE.findall(log) and [line for line in log.splitlines() if _TROUBLE.search(line)]


def dropped_tail(log: str) -> str:
    """Return the line that names a dropped tail, empty if there is none."""
    return next((line for line in log.splitlines() if _TAIL in line), "")


def diagnosed(answered: dict[str, str], damaged: list[str]) -> dict[str, str]:
    """Return the answer of a server, compared with the earlier findings of `quire doctor`."""
    verdict = Verdict[answered["verdict"]]
    if verdict is Verdict.RIGHT and damaged:
        return answer(Verdict.ALARM, "; ".join(damaged))
    if verdict in (Verdict.REFUSED, Verdict.ERROR) and not damaged:
        return answer(Verdict.MISSED, f"{verdict.value}: {answered['detail']}")
    return answered
