"""Options in the syntax of BookKeeper's shell (pure).

    -l 5    -ledgerid 5    --ledgerid 5    --l 5    -l=5    --ledgerid=5       all the same
    an option that wants a value takes the next word, unless that is an option itself
    all other words are operands; behind `--` every word is one

Source: commons-cli's BasicParser, with which BookieShell reads its command lines.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from quire.cli.shell.errors import UsageError

LONG_MAX: Final = (1 << 63) - 1


class OptionKind(Enum):
    """Kind of an option's value."""

    SWITCH = "none"
    TEXT = "text"
    MAYBE_TEXT = "text or nothing"
    """The value is the next word, if that is no option; else it is empty."""
    NUMBER = "number"
    LEDGER = "ledger id"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOption:
    name: str
    """Long name, which commands use."""
    short: str = ""
    kind: OptionKind = OptionKind.SWITCH
    default: int | None = None
    """Value of a number that was not given."""
    minimum: int = 0
    """Minimum of a number."""
    required: bool = False
    help: str = ""

    @property
    def words(self) -> str:
        """Return its form in a usage text."""
        names = ", ".join(f"-{name}" for name in (self.short, self.name) if name)
        return names if self.kind is OptionKind.SWITCH else f"{names} <{self.kind.value}>"


class LedgerIdFormat(Enum):
    """Format of ledger ids in input and output: -ledgeridformat."""

    LONG = "long"
    HEX = "hex"
    UUID = "uuid"

    def write(self, ledger_id: int) -> str:
        """
        >>> LedgerIdFormat.HEX.write(26), LedgerIdFormat.UUID.write(26)
        ('1a', '00000000-0000-0000-0000-00000000001a')
        """
        if self is LedgerIdFormat.UUID:
            return str(uuid.UUID(int=ledger_id))
        return f"{ledger_id:x}" if self is LedgerIdFormat.HEX else str(ledger_id)

    def read(self, text: str) -> int:
        """Parse a ledger id. Raises ValueError.

        >>> LedgerIdFormat.HEX.read("1a")
        26
        """
        text = text.strip()
        if self is LedgerIdFormat.UUID:
            number = uuid.UUID(text).int & LONG_MAX
        else:
            number = _whole(text, 16 if self is LedgerIdFormat.HEX else 10)
        if not 0 <= number <= LONG_MAX:
            raise ValueError(f"not a ledger id: {text}")
        return number


class Arguments:
    """Arguments of a command."""

    def __init__(self, values: Mapping[str, str | int | bool], operands: Sequence[str]) -> None:
        self._values = values
        self.operands = tuple(operands)

    def has(self, name: str) -> bool:
        """Return whether the option was given, or has a default."""
        return name in self._values

    def one_of(self, *names: str) -> str:
        """Return the one of these options that was given. Raises UsageError, with the original's exit code for it."""
        given = [name for name in names if self.has(name)]
        if len(given) != 1:
            error = UsageError(f"give one of {', '.join([f'-{name}' for name in names])}")
            error.code = 1
            raise error
        return given[0]

    def number(self, name: str) -> int:
        """Return the value of an option that is a number or a ledger id, and was given or has a default."""
        value = self._values[name]
        assert isinstance(value, int), f"{name} is no number"
        return value

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        assert value is None or isinstance(value, str), f"{name} is no text"
        return value

    def required(self, name: str) -> str:
        """Return the text of a required option."""
        value = self.text(name)
        assert value is not None, f"{name} was not asked for as required"
        return value


def parse(
    options: Sequence[CommandOption],
    words: Sequence[str],
    *,
    operands: Sequence[str] = (),
    ledger_ids: LedgerIdFormat = LedgerIdFormat.LONG,
) -> Arguments:
    """Parse the words behind a command's name; `operands` are the names of the required ones. Raises UsageError."""
    by_name = {name: option for option in options for name in (option.name, option.short) if name}
    values: dict[str, str | int | bool] = {}
    rest: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            rest += words[at:]
            break
        if not word.startswith("-") or word == "-":
            rest.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        option = by_name.get(name)
        if option is None:
            raise UsageError(f"no such option: {word}")
        if option.kind is OptionKind.SWITCH:
            if equals:
                raise UsageError(f"-{name} does not take a value")
            values[option.name] = True
            continue
        if option.kind is OptionKind.MAYBE_TEXT:
            if not equals and at < len(words) and not words[at].startswith("-"):
                value = words[at]
                at += 1
            values[option.name] = value
            continue
        if not equals:
            if at == len(words) or _is_option(words[at], by_name):
                raise UsageError(f"-{name} requires a {option.kind.value}")
            value = words[at]
            at += 1
        values[option.name] = _value(option, name, value, ledger_ids)
    for option in options:
        if option.name not in values:
            if option.required:
                raise UsageError(f"{option.words} must be given")
            if option.default is not None:
                values[option.name] = option.default
    if len(rest) != len(operands):
        wanted = " ".join(f"<{name}>" for name in operands) or "no operand"
        raise UsageError(f"{wanted} is wanted, not {' '.join(rest) or 'nothing'}")
    return Arguments(values, rest)


def _is_option(word: str, by_name: Mapping[str, CommandOption]) -> bool:
    return word.startswith("-") and word.lstrip("-").partition("=")[0] in by_name


def _value(option: CommandOption, name: str, text: str, ledger_ids: LedgerIdFormat) -> str | int:
    if option.kind is OptionKind.TEXT:
        return text
    read: Callable[[str], int] = ledger_ids.read if option.kind is OptionKind.LEDGER else _whole
    try:
        number = read(text)
    except ValueError:
        raise UsageError(f"-{name}: not a {option.kind.value}: {text}") from None
    if option.kind is OptionKind.NUMBER and not option.minimum <= number <= LONG_MAX:
        raise UsageError(f"-{name}: {number} is below {option.minimum} or too large")
    return number


def _whole(text: str, base: int = 10) -> int:
    """Parse a number as Java does: ASCII digits with a sign, nothing else."""
    if not text.isascii() or "_" in text or text != text.strip() or text.lower().startswith(("0x", "-0x", "+0x")):
        raise ValueError(text)
    return int(text, base)
