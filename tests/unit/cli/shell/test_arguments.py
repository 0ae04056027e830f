from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from quire.cli.shell.arguments import CommandOption, LedgerIdFormat, OptionKind, parse
from quire.cli.shell.errors import UsageError
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues

OPTIONS = (
    CommandOption(name="ledgerid", short="l", kind=OptionKind.LEDGER),
    CommandOption(name="lastentryid", short="le", kind=OptionKind.NUMBER, default=-1, minimum=-1),
    CommandOption(name="bookie", short="b", kind=OptionKind.TEXT),
    CommandOption(name="msg", short="m"),
    CommandOption(name="dumptofile", kind=OptionKind.TEXT),
)


@pytest.mark.parametrize("dialogue", dialogues(Path(__file__).parent / "testdata" / "arguments.txt"))
def test_words(dialogue: Dialogue) -> None:
    """`read: -l 5` shows the options that are given, and the operands; `read-log` wants an operand."""

    def answer(step: Line) -> str:
        words = step.word().split() if step.words else []
        found = parse(OPTIONS, words, operands=("log",) if step.name == "read-log" else ())
        told = [f"ledgerid={found.number('ledgerid')}"] if found.has("ledgerid") else []
        told += [f"lastentryid={found.number('lastentryid')}"]
        told += [f"bookie={found.text('bookie')}", "msg" if found.has("msg") else "no msg", *found.operands]
        return " ".join(told)

    dialogue.check(answer, UsageError)


def test_an_option_that_must_be_given_is_named() -> None:
    with pytest.raises(UsageError, match=r"-cf, -cookie-file <text> must be given"):
        parse((CommandOption(name="cookie-file", short="cf", kind=OptionKind.TEXT, required=True),), ())


@pytest.mark.parametrize("ledger_id", [0, 26, 5_000_000_000, (1 << 63) - 1])
@pytest.mark.parametrize("form", list(LedgerIdFormat))
def test_a_ledger_id_is_read_as_it_is_written(form: LedgerIdFormat, ledger_id: int) -> None:
    text = form.write(ledger_id)
    assert parse(OPTIONS, ("-l", text), ledger_ids=form).number("ledgerid") == ledger_id
    if form is LedgerIdFormat.UUID:
        assert uuid.UUID(text).int == ledger_id
