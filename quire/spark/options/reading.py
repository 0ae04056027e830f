"""Options of a read beyond topics and places: decoding, credentials, waiting, names of subscriptions. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.spark.errors import OptionError
from quire.spark.options.values import Given
from quire.spark.topics import TopicsPattern, full_name, partitioned_name

if TYPE_CHECKING:
    from quire.spark.options.table import Use

DECODES = ("none", "schema")
ON_DECODE_ERROR = ("fail", "null", "deadLetter")
ONLY_DECODED = ("__rawValue", "__decodeError")
"""Columns that exist with `decode=schema` only."""
SCHEMA_VERSION_MAX = (1 << 63) - 1
TRIGGER_DELAY_MS = 15 * 60_000
_DELAY = re.compile(r"(\d{1,12})\s*(ms|s|m|h)", re.ASCII)
_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


@dataclass(frozen=True, slots=True)
class Secret:
    """A text that no representation shows.

    >>> Secret("x")
    Secret(...)
    """

    text: str = ""

    def __repr__(self) -> str:
        return "Secret(...)" if self.text else "Secret()"

    def __bool__(self) -> bool:
        return bool(self.text)


@dataclass(frozen=True, slots=True)
class CredentialOptions:
    """Credentials of a query, or the paths of files that have them; at most one is given."""

    token_file: str = ""
    """Path of a file with a token."""
    password_file: str = ""
    """Path of a file with `user:password`."""
    token: Secret = Secret()
    password: Secret = Secret()
    """`user:password`."""


_AUTHENTICATION = ("authTokenFile", "authPasswordFile", "authToken", "authPassword")


def authentication(given: Given) -> CredentialOptions:
    """Return the credentials. Raises OptionError, without any of them."""
    named = [name for name in _AUTHENTICATION if name in given]
    if len(named) > 1:
        raise OptionError(named[1], None, f"{named[0]} is given too: give one of {', '.join(_AUTHENTICATION)}")
    password = given.text("authPassword")
    if password and not password.find(":") > 0:
        raise OptionError("authPassword", None, "give user:password")
    for name in named:
        if not given.text(name):
            raise OptionError(name, None, "it is empty")
    return CredentialOptions(
        given.text("authTokenFile"),
        given.text("authPasswordFile"),
        Secret(given.text("authToken")),
        Secret(password),
    )


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """Decoding of values."""

    by_schema: bool = False
    version: int | None = None
    """Version of the schema to read by; None: the newest one at load."""
    on_error: str = "fail"
    dead_letter_topic: str = ""
    """Full name; "": there is none."""


def decode_options(given: Given, topics: tuple[str, ...], pattern: TopicsPattern | None) -> DecodeOptions:
    """Return how values are decoded. Raises OptionError."""
    by_schema = given.choice("decode", "none", DECODES) == "schema"
    for name in ("schemaVersion", "onDecodeError", "deadLetterTopic"):
        if name in given and not by_schema:
            raise given.refuse(name, "it is for decode=schema: set that, or remove this")
    on_error = given.choice("onDecodeError", "fail", ON_DECODE_ERROR)
    letters = ""
    if ("deadLetterTopic" in given) != (on_error == "deadLetter"):
        missing = "onDecodeError" if "deadLetterTopic" in given else "deadLetterTopic"
        raise OptionError(missing, None, "onDecodeError=deadLetter and deadLetterTopic=<topic> are given together")
    if on_error == "deadLetter":
        try:
            letters = full_name(given.text("deadLetterTopic"))
        except ValueError as error:
            raise given.refuse("deadLetterTopic", str(error)) from None
        read = {partitioned_name(topic) for topic in topics}
        if partitioned_name(letters) in read or (pattern is not None and pattern.matches(letters)):
            raise given.refuse("deadLetterTopic", "it is one of the topics that are read: its letters would come back")
    return DecodeOptions(by_schema, given.optional_integer("schemaVersion", 0), on_error, letters)


def trigger_delay_ms(given: Given) -> int:
    """Return the time for which a minimum of messages is waited for. Raises OptionError."""
    if "maxTriggerDelay" not in given:
        return TRIGGER_DELAY_MS
    if "minMessagesPerTrigger" not in given:
        raise given.refuse("maxTriggerDelay", "it is for minMessagesPerTrigger: set that, or remove this")
    match = _DELAY.fullmatch(given.text("maxTriggerDelay").lower())
    if match is None or not int(match[1]):
        raise given.refuse("maxTriggerDelay", "give a number with ms, s, m or h: 30s")
    return int(match[1]) * _MS[match[2]]


def prefixed_subscription(given: Given, use: Use, topics: tuple[str, ...], pattern: TopicsPattern | None) -> str:
    """Return the name of the subscription by the option subscriptionPrefix, the same at each start; "": not given.

    A random end, as Kafka's source has it, would leave a subscription behind at each start, which holds data."""
    if "subscriptionPrefix" not in given:
        return ""
    prefix = given.text("subscriptionPrefix")
    if "subscription" in given:
        raise given.refuse("subscriptionPrefix", "subscription is given too: leave one of them out")
    if use == "batch":
        raise given.refuse("subscriptionPrefix", "a batch read has no subscription: leave it out")
    if not prefix:
        raise given.refuse("subscriptionPrefix", "it is empty")
    read = "\n".join(sorted(topics)) if pattern is None else f"{pattern.namespace}/{pattern.local}"
    return f"{prefix}-{hashlib.sha256(read.encode()).hexdigest()[:12]}"
