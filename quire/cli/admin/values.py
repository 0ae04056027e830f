"""Values of the command line (pure): sizes, times, message ids, lists, properties.

The rules are pulsar-admin's: a size has a suffix of k, m, g or t (powers of 1024), a time one of s, m, h, d, w or y.
Where a rule of the original loses something silently (30 seconds of retention are 0 minutes), the value is refused.
Sources: Pulsar's RelativeTimeUtil, ByteUnitUtil, ValidateUtils, NameValueParameterSplitter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from quire.wire.pulsar.names import NamespaceName, TopicName

INT64_MAX: Final = (1 << 63) - 1
INT32_MAX: Final = (1 << 31) - 1
MINUTE_S: Final = 60
MEGABYTE: Final = 1 << 20
_SIZES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TIMES: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}
Json = Any


@dataclass(frozen=True, slots=True)
class ValueKind:
    """Kind of a value: its name in help texts, and the function that reads it. The function raises ValueError."""

    metavar: str
    read: Callable[[str], Any]
    is_flag: bool = False
    is_list: bool = False
    choices: tuple[str, ...] = ()
    """Words that completion offers."""


def whole(text: str) -> int:
    """Return a whole number. Raises ValueError."""
    try:
        found = int(text)
    except ValueError:
        raise ValueError("is not a whole number, such as 4") from None
    if not -INT64_MAX - 1 <= found <= INT64_MAX:
        raise ValueError("does not fit into 64 bits")
    return found


def decimal(text: str) -> float:
    """Return a number. Raises ValueError."""
    try:
        found = float(text)
    except ValueError:
        raise ValueError("is not a number, such as 1.5") from None
    if found != found or found in (float("inf"), float("-inf")):
        raise ValueError("is not a number, such as 1.5")
    return found


def size(text: str) -> int:
    """Return a number of bytes: `4096`, `10M`, `1.5G`. Raises ValueError."""
    return _scaled(text, _SIZES, "is not a size, such as 4096, 10M or 1G")


def seconds(text: str) -> int:
    """Return a number of seconds: `90`, `90s`, `10m`, `3h`, `2d`, `5w`. Raises ValueError."""
    return _scaled(text, _TIMES, "is not a time, such as 90s, 10m, 3h or 2d")


def unit_seconds(text: str) -> int:
    """Return a number of seconds of a time that must have a unit. Raises ValueError."""
    if not text or not text[-1].isalpha():
        raise ValueError("has no unit: give 90s, 10m, 3h or 2d")
    return seconds(text)


def milliseconds(text: str) -> int:
    """Return a number of milliseconds of a time, such as `1s`. Raises ValueError."""
    if text.endswith("ms"):
        return whole(text[:-2])
    return seconds(text) * 1000


def retention_minutes(text: str) -> int:
    """Return whole minutes; -1 for no limit, 0 for none. Raises ValueError."""
    return _in_units(seconds(text), MINUTE_S, "is not in whole minutes, in which retention is kept: give 1m or more")


def retention_megabytes(text: str) -> int:
    """Return whole megabytes; -1 for no limit, 0 for none. Raises ValueError."""
    return _in_units(size(text), MEGABYTE, "is not in whole megabytes, in which retention is kept: give 1M or more")


def truth(text: str) -> bool:
    """Return true or false. Raises ValueError."""
    if text.lower() not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return text.lower() == "true"


def words(text: str) -> list[str]:
    """Return the parts of a list with commas, without empty ones."""
    return [each.strip() for each in text.split(",") if each.strip()]


def pairs(texts: list[str]) -> dict[str, str]:
    """Return the properties `key=value`, several in one text with commas. Raises ValueError."""
    found: dict[str, str] = {}
    for text in texts:
        for each in text.split(","):
            if "=" not in each and found:
                last = next(reversed(found))
                found[last] += f",{each}"  # (a comma in a value)
                continue
            key, equals, value = each.partition("=")
            if not equals or not key:
                raise ValueError("is not key=value")
            found[key] = value
    return found


def message_id(text: str) -> dict[str, int]:
    """Return the JSON of `latest`, `earliest` or `ledger:entry[:partition[:batch]]`. Raises ValueError."""
    if text == "latest":
        return {"ledgerId": INT64_MAX, "entryId": INT64_MAX, "partitionIndex": -1}
    if text == "earliest":
        return {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
    parts = text.split(":")
    try:
        numbers = [int(each) for each in parts]
    except ValueError:
        numbers = []
    if not 2 <= len(numbers) <= 4:
        raise ValueError("is neither latest, earliest nor ledger:entry, such as 12:7")
    found = {"ledgerId": numbers[0], "entryId": numbers[1], "partitionIndex": -1}
    if len(numbers) > 2:
        found["partitionIndex"] = numbers[2]
    if len(numbers) > 3:
        found["batchIndex"] = numbers[3]
    return found


def timestamp_ms(text: str) -> int:
    """Return the milliseconds since 1970 of a number of them, or of an ISO date and time with offset. Raises
    ValueError."""
    if text.isdigit():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValueError("is no time: give milliseconds since 1970, or 2026-06-28T16:53:08Z")
    return int(found.timestamp() * 1000)


def json_file(text: str) -> Json:
    """Return the JSON in a file. Raises ValueError."""
    try:
        return json.loads(Path(text).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ValueError("has no JSON in UTF-8") from None


def one_of(*names: str) -> ValueKind:
    """Return the kind of a word out of some; upper and lower case are the same."""

    def read(text: str) -> str:
        for name in names:
            if name.lower() == text.lower():
                return name
        raise ValueError(f"is none of {', '.join(names)}")

    return ValueKind("|".join(names), read, choices=names)


def several_of(*names: str) -> ValueKind:
    """Return the kind of a list with commas of some words."""
    one = one_of(*names)
    return ValueKind(f"{names[0]},...", lambda text: [one.read(each) for each in words(text)], choices=names)


def number(lowest: int, highest: int = INT32_MAX) -> ValueKind:
    """Return the kind of a whole number with bounds, both inclusive."""

    def read(text: str) -> int:
        found = whole(text)
        if not lowest <= found <= highest:
            raise ValueError(f"is not {lowest} to {highest}")
        return found

    return ValueKind("NUMBER", read)


TEXT: Final = ValueKind("TEXT", str)
FLAG: Final = ValueKind("", str, is_flag=True)
WHOLE: Final = ValueKind("NUMBER", whole)
DECIMAL: Final = ValueKind("NUMBER", decimal)
SIZE: Final = ValueKind("SIZE", size)
SECONDS: Final = ValueKind("TIME", seconds)
UNIT_SECONDS: Final = ValueKind("TIME", unit_seconds)
MILLISECONDS: Final = ValueKind("TIME", milliseconds)
RETENTION_TIME: Final = ValueKind("TIME", retention_minutes)
RETENTION_SIZE: Final = ValueKind("SIZE", retention_megabytes)
TRUTH: Final = one_of("true", "false")
WORDS: Final = ValueKind("A,B,...", words)
PAIRS: Final = ValueKind("KEY=VALUE", str, is_list=True)
MESSAGE_ID: Final = ValueKind("LEDGER:ENTRY", message_id)
TIMESTAMP: Final = ValueKind("TIMESTAMP", timestamp_ms)
JSON_FILE: Final = ValueKind("FILE", json_file)
TOPIC: Final = ValueKind("TOPIC", TopicName.parse)
NAMESPACE: Final = ValueKind("TENANT/NAMESPACE", NamespaceName.parse)


def _scaled(text: str, scales: dict[str, int], otherwise: str) -> int:
    digits, scale = text.strip(), 1
    if digits[-1:].lower() in scales:
        digits, scale = digits[:-1], scales[digits[-1].lower()]
    try:
        found = int(digits) * scale if digits.lstrip("-").isdigit() else float(digits) * scale
    except ValueError:
        raise ValueError(otherwise) from None
    if found != found or abs(found) > INT64_MAX or found != int(found):
        raise ValueError(otherwise)
    if found < 0 and (found != -1 or scale != 1):
        raise ValueError("is negative; only -1 is, for no limit")
    return int(found)


def _in_units(found: int, unit: int, otherwise: str) -> int:
    if found <= 0:
        return found
    if found % unit:
        raise ValueError(otherwise)
    return found // unit
