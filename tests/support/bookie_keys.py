"""docs/bookie-keys.md: the verdict on each key of BookKeeper's bookies, made from the rules and the declarations.

python -m tests.support.bookie_keys --write
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from quire.servers.autorecovery.config import AUTORECOVERY
from quire.servers.bookie.config import BOOKIE
from quire.servers.cluster_config import SHELL
from quire.service.original_conf import Fate, Rule
from quire.service.programs.command_line import run_command
from quire.service.unsupported import RULES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "bookie-keys.md"
FOLDER = ROOT / "tests" / "golden" / "configuration"
KEYS = FOLDER / "bookkeeper.txt"
EFFECTS = FOLDER / "effects.txt"
OBEYED, WITHOUT, DEFAULT_ONLY, REFUSED = "obeyed", "without effect", "default only", "refused"
_FATES = {Fate.HARMLESS: WITHOUT, Fate.AT_REST: DEFAULT_ONLY, Fate.REFUSED: REFUSED}
_FIELDS = (
    ("the bookie", frozenset(BOOKIE.keys())),
    ("auto recovery", frozenset(AUTORECOVERY.keys())),
    ("the shell", frozenset(SHELL.keys())),
)
HEAD = """# Keys of BookKeeper's bookies

Verdict on every key that the configuration classes of BookKeeper 4.17.3 and 4.18.0 declare
(`scripts/bookie_keys.py` reads them out of the jars). This page is made by
`python -m tests.support.bookie_keys --write`; `quire config explain KEY` prints the same for one key.

- *obeyed*: it does here what it does there, within the bounds of [configuration.md](configuration.md).
- *without effect*: any value is taken, for the reason given; the log names the key once.
- *default only*: the original's default is taken; with another value the bookie does not start, and says why.
- *refused*: a value that needs what is missing prevents the start; the message has the remedy.

"""


class OriginalKey(NamedTuple):
    name: str
    declared_in: str
    versions: str


class Verdict(NamedTuple):
    kind: str
    why: str


def original_keys() -> list[OriginalKey]:
    """Return the keys in the list that was made from the jars."""
    lines = KEYS.read_text(encoding="ascii").splitlines()
    return [OriginalKey(*line.split("\t")) for line in lines if not line.startswith("#")]


def effects() -> dict[str, str]:
    """Return the tests of obeyed keys, as file::test, by key."""
    lines = EFFECTS.read_text(encoding="ascii").splitlines()
    return dict(line.split("\t") for line in lines if line and not line.startswith("#"))


def verdict(name: str) -> Verdict | None:
    """Return what becomes of a key; None if nothing is known of it."""
    for by, fields in _FIELDS:
        if name in fields:
            return Verdict(OBEYED, f"by {by}")
    if name in BOOKIE.rules.aliases:
        return Verdict(OBEYED, f"as an older name of {BOOKIE.rules.aliases[name]}")
    rule = RULES["bookie"].find(name)
    of_recovery = RULES["autorecovery"].find(name)
    if rule is not None and rule.fate is Fate.HARMLESS and of_recovery is not None:
        rule = of_recovery
    return None if rule is None else _of(rule)


def _of(rule: Rule) -> Verdict:
    return Verdict(_FATES[rule.fate], rule.reason)


def page() -> str:
    """Return the text of the page."""
    return HEAD + "".join(_lines())


def _lines() -> Iterator[str]:
    found = {key: verdict(key.name) for key in original_keys()}
    counts = {kind: sum(each is not None and each.kind == kind for each in found.values()) for kind in _FATES.values()}
    obeyed = sum(each is not None and each.kind == OBEYED for each in found.values())
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    yield f"Of {len(found)} keys {obeyed} are obeyed, {told}.\n\n"
    yield "| key | verdict | by what, or why |\n|---|---|---|\n"
    for key, each in found.items():
        since = "" if key.versions.startswith("4.17") else f" (since {key.versions})"
        kind, why = each or Verdict("unknown", "")
        yield f"| `{key.name}`{since} | {kind} | {why.replace('|', chr(92) + '|')} |\n"


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(bookie_keys, name="python -m tests.support.bookie_keys", text=__doc__)


def bookie_keys(write: Annotated[bool, typer.Option("--write", help="Write the page anew.")] = False) -> int:
    if write:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
