"""`quire peek`: the next messages of a subscription, over the admin REST. Nothing is delivered or acknowledged."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from quire.cli.messages.access import FAILED, ClusterAccess, FlagsError, full_name, guarded
from quire.cli.messages.flags import argument, flag
from quire.cli.messages.output import MessageOutput, OutputFlags
from quire.cli.messages.records import MessageRecord, Pairs
from quire.cli.messages.web import path_of, reason_of, web_client
from quire.client.batches import Properties, decoded_key, split

TEXT = """Write the next messages of a subscription, without delivering or acknowledging any.

Exit codes: 0 written, 1 the broker refuses or does not answer, 2 flags cannot be used."""
_NOT_FOUND = 404


@dataclass(frozen=True, kw_only=True)
class PeekFlags(OutputFlags, ClusterAccess):
    """Flags of `quire peek`."""

    topic: str = argument("Topic or partition.", name="TOPIC")
    subscription: str = flag("", "--subscription", "--subscription-name", "-s", help="Subscription (required).")
    count: int = flag(1, "--count", "--num-messages", "-n", help="Number of messages.")


def run_peek(flags: PeekFlags) -> int:
    """Run the command, and return its exit code."""
    return guarded("peek", lambda: _peek(flags))


def _peek(flags: PeekFlags) -> int:
    if not flags.subscription:
        raise FlagsError("give the subscription: --subscription NAME")
    if flags.count < 1:
        raise FlagsError(f"--count is {flags.count}, and must be above 0")
    topic = full_name(flags.topic)
    output = MessageOutput(flags)
    with web_client(flags) as client:
        for number in range(1, flags.count + 1):
            answer = client.get(f"{path_of(topic)}/subscription/{quote(flags.subscription, safe='')}/position/{number}")
            if answer.status_code == _NOT_FOUND and number > 1:
                break
            if answer.status_code != 200:
                print(f"quire peek: {reason_of(answer)}", file=sys.stderr)
                return FAILED
            records = list(records_of(answer.content, answer.headers, topic))
            output.write(records[: flags.count - output.count])
            if output.count >= flags.count:
                break
    print(f"{output.count} messages successfully peeked", file=sys.stderr)
    return 0


def records_of(body: bytes, headers: Mapping[str, str], topic: str) -> Iterator[MessageRecord]:
    """Yield the messages of an answer. Raises CorruptEntryError."""
    place = headers.get("X-Pulsar-Message-ID", "")
    published = _ms(headers.get("X-Pulsar-publish-time", ""))
    count = headers.get("X-Pulsar-num-batch-message")
    if count is not None:
        values: list[bytes | None] = []
        keys: list[bytes | None] = []
        events: list[int] = []
        properties: list[Properties] = []
        left_out = set(split(body, int(count), values, keys, events, properties))
        indexes = [index for index in range(int(count)) if index not in left_out]
        for index, value, key, event, pairs in zip(indexes, values, keys, events, properties, strict=True):
            yield MessageRecord(value, key, tuple(pairs), event, topic, f"{place}:{index}", published)
        return
    key_text = headers.get("X-Pulsar-partition-key")
    yield MessageRecord(
        value=None if headers.get("X-Pulsar-null-value") == "true" else body,
        key=_key(key_text, encoded=headers.get("X-Pulsar-partition-key-b64-encoded") == "true"),
        properties=_properties(headers),
        event_ms=_ms(headers.get("X-Pulsar-event-time", "")),
        topic=topic,
        id=place,
        publish_ms=published,
    )


def _key(text: str | None, *, encoded: bool) -> bytes | None:
    if text is None:
        return None
    return decoded_key(text.encode()) if encoded else text.encode()


def _properties(headers: Mapping[str, str]) -> Pairs:
    found = json.loads(headers.get("X-Pulsar-PROPERTY", "{}"))
    return tuple((str(name), str(value)) for name, value in found.items())


def _ms(text: str) -> int:
    """Return a time in ms since 1970; 0: none, or one that is not understood."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return 0
