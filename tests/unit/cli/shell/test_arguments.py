from __future__ import annotations

import uuid

import pytest

from quire.cli.shell.arguments import Arguments, CommandOption, LedgerIdFormat, OptionKind, parse
from quire.cli.shell.errors import UsageError

OPTIONS = (
    CommandOption(name="ledgerid", short="l", kind=OptionKind.LEDGER),
    CommandOption(name="lastentryid", short="le", kind=OptionKind.NUMBER, default=-1, minimum=-1),
    CommandOption(name="bookie", short="b", kind=OptionKind.TEXT),
    CommandOption(name="msg", short="m"),
    CommandOption(name="dumptofile", kind=OptionKind.TEXT),
)


def read(*words: str, operands: tuple[str, ...] = (), ledger_ids: LedgerIdFormat = LedgerIdFormat.LONG) -> Arguments:
    return parse(OPTIONS, words, operands=operands, ledger_ids=ledger_ids)


@pytest.mark.parametrize(
    "words",
    [("-l", "5"), ("--l", "5"), ("-ledgerid", "5"), ("--ledgerid", "5"), ("-l=5",), ("--ledgerid=5",)],
)
def test_one_and_two_dashes_short_and_long_names_mean_the_same(words: tuple[str, ...]) -> None:
    assert read(*words).number("ledgerid") == 5


def test_short_names_of_two_letters_are_not_two_options() -> None:
    arguments = read("-le", "7", "-l", "3")
    assert (arguments.number("lastentryid"), arguments.number("ledgerid")) == (7, 3)


def test_defaults_and_switches() -> None:
    arguments = read()
    assert arguments.number("lastentryid") == -1
    assert not arguments.has("msg")
    assert not arguments.has("ledgerid")
    assert arguments.text("bookie") is None
    assert read("-msg").has("msg")


def test_operands_may_stand_anywhere() -> None:
    arguments = read("0", "-m", operands=("log",))
    assert (arguments.operands, arguments.has("msg")) == (("0",), True)
    assert read("-m", "0", operands=("log",)).operands == ("0",)
    assert read("--", "-m", operands=("log",)).operands == ("-m",)


def test_a_negative_number_is_a_value() -> None:
    assert read("-le", "-1").number("lastentryid") == -1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("-zz",), "no such option: -zz"),
        (("-L", "5"), "no such option: -L"),
        (("-b",), "-b requires a text"),
        (("-b", "-m"), "-b requires a text"),
        (("-l", "7x"), "-l: not a ledger id: 7x"),
        (("-l", "-1"), "-l: not a ledger id: -1"),
        (("-l", "9223372036854775808"), "not a ledger id"),
        (("-l", "1_0"), "not a ledger id"),
        (("-le", "-2"), "-le: -2 is below -1"),
        (("-le", "0x1"), "-le: not a number: 0x1"),
        (("-m=1",), "-m does not take a value"),
        (("extra",), "no operand is wanted, not extra"),
    ],
)
def test_what_cannot_be_understood_is_named(words: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        read(*words)


def test_a_missing_operand_is_named() -> None:
    with pytest.raises(UsageError, match="<log> is wanted, not nothing"):
        read(operands=("log",))


def test_an_option_that_must_be_given_is_named() -> None:
    with pytest.raises(UsageError, match=r"-cf, -cookie-file <text> must be given"):
        parse((CommandOption(name="cookie-file", short="cf", kind=OptionKind.TEXT, required=True),), ())


@pytest.mark.parametrize("ledger_id", [0, 26, 5_000_000_000, (1 << 63) - 1])
@pytest.mark.parametrize("form", list(LedgerIdFormat))
def test_a_ledger_id_is_read_as_it_is_written(form: LedgerIdFormat, ledger_id: int) -> None:
    text = form.write(ledger_id)
    assert read("-l", text, ledger_ids=form).number("ledgerid") == ledger_id
    if form is LedgerIdFormat.UUID:
        assert uuid.UUID(text).int == ledger_id
