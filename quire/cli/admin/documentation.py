"""The list of verbs in docs/admin.md.

python -m quire.cli.admin.documentation     writes it again; a test compares it
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from quire.cli.admin.groups import ALIASES, GROUPS, group
from quire.cli.admin.table import root
from quire.cli.admin.values import FLAG
from quire.cli.admin.verbs import Verb, VerbGroup, VerbParameter

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "admin.md"
BEGIN: Final = "<!-- verbs: written by python -m quire.cli.admin.documentation -->\n"
END: Final = "<!-- end of verbs -->\n"


def with_verbs(page: str) -> str:
    """Return the page with the current list between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, "the page has the first mark"
    assert end, "the page has the second mark"
    return f"{before}{BEGIN}\n{verbs()}\n{END}{after}"


def verbs() -> str:
    """Return a table for each group."""
    lines = [*_group(root.GROUP, "quire admin")]
    for name in GROUPS:
        if name != "subscriptions":
            lines += ["", *_group(group(name), f"quire admin {name}")]
    return "".join(f"{line}\n" for line in lines)


def _group(found: VerbGroup, command: str) -> Iterator[str]:
    others = [other for other, name in ALIASES.items() if name == found.name]
    yield f"### {command}"
    yield ""
    yield found.help + (f" Also `{others[0]}`." if others else "")
    yield ""
    yield "| verb | arguments and options | request | |"
    yield "|---|---|---|---|"
    for each in found.verbs:
        yield f"| `{each.name}` | {_options(each)} | {each.method} `{each.path}` | {_text(each)} |"


def _options(verb: Verb) -> str:
    return " ".join(f"`{_option(each)}`" for each in verb.parameters).replace("|", "\\|")


def _option(parameter: VerbParameter) -> str:
    if not parameter.flags:
        shown = parameter.kind.metavar if parameter.kind.metavar != "TEXT" else parameter.name.upper()
    elif parameter.kind is FLAG:
        shown = ", ".join(parameter.flags)
    else:
        shown = f"{', '.join(parameter.flags)} {parameter.kind.metavar}"
        shown += f" = {parameter.default}" if parameter.default is not None else ""
    return shown if parameter.required else f"[{shown}]"


def _text(verb: Verb) -> str:
    return verb.help + (" **Asks first.**" if verb.destroys else "")


if __name__ == "__main__":
    PAGE.write_text(with_verbs(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
