"""Place of a subscription, read for a backup and set by a restore.

GET      {subscription}/quireState?ledger=&entry=
             {"markDelete":"3:4","ranges":[[3,6,7]],"batches":[[3,8,[5]]],"properties":{},"numbers":{},"more":false}
PUT      {subscription}/quireState   body: {"acknowledged":5,"properties":{},"numbers":{}}; 204; made again
POST     {subscription}/quireState   body: {"ranges":[[6,7]],"batches":[[8,[5]]]}; 204; entries by number, from 0

`ranges` are entries that are acknowledged above the mark-delete position, both ends inclusive: at most RANGES_MAX that
begin behind `ledger` and `entry`. `batches` have the words of the messages that are not acknowledged; they come with
the last ranges. The calls that set are for a topic that is being restored, 409 otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import trio
from starlette.responses import Response

from broker.admin.backup.entries import check_being_restored
from broker.admin.errors import MalformedRequestError
from broker.admin.positions.every import on_topic, subscription_of
from broker.admin.properties import check_size
from broker.admin.requests import INT64_MAX, PROPERTIES, AdminCall
from broker.admin.resource import answer
from broker.errors import MetadataRefusedError, ServiceNotReadyError
from broker.topics.topic import Topic
from cursors.errors import CursorError
from quire.ledger.position import EARLIEST
from quire.service.web.parameters import WholeNumber
from quire.service.web.shapes import ByName, Either, Listing, Record, Whole

RANGES_MAX: Final = 2000
BODY_BYTES_MAX: Final = 4 << 20
_STEP: Final = 1000
_LEDGER: Final = WholeNumber("ledger", "Ledger of the last range that was answered.", -1, INT64_MAX)
_ENTRY: Final = WholeNumber("entry", "Last entry of that range.", -1, INT64_MAX)
_NUMBER: Final = Whole(0, INT64_MAX)
_WORD: Final = Whole(-INT64_MAX - 1, INT64_MAX)
_PLACE: Final = Record(
    {"acknowledged": _NUMBER, "properties": PROPERTIES, "numbers": ByName(_WORD)}, needed=("acknowledged",)
)
_ACKS: Final = Record(
    {"ranges": Listing(Listing(_NUMBER)), "batches": Listing(Listing(Either((Listing(_WORD), _NUMBER))))}
)


async def get(call: AdminCall) -> Response:
    name = call.subscription()
    ledger, entry = call.whole(_LEDGER), call.whole(_ENTRY)
    after = (-1 if ledger is None else ledger, -1 if entry is None else entry)

    async def work(topic: Topic) -> dict[str, Any]:
        cursor = subscription_of(topic, name).cursor
        ranges = cursor.ack_ranges(after, RANGES_MAX)
        found: dict[str, Any] = {
            "markDelete": str(cursor.mark_delete),
            "ranges": ranges,
            "properties": dict(cursor.cursor_properties),
            "numbers": cursor.properties,
            "more": len(ranges) == RANGES_MAX,
            "batches": [],
        }
        if not found["more"]:
            for page in cursor.partly_acked():
                found["batches"] += [[*position, words] for position, words in page]
                await trio.lowlevel.checkpoint()
        return found

    return answer(await on_topic(call, work))


async def put(call: AdminCall) -> None:
    name, given = call.subscription(), _PLACE.check(await call.json(), "a place", MalformedRequestError)
    properties, acknowledged = given.get("properties", {}), given["acknowledged"]
    check_size(properties)

    async def work(topic: Topic) -> None:
        topic.check_open()
        check_being_restored(topic)
        topic.used_at = trio.current_time()
        if name in topic.subscriptions:
            await topic.delete_subscription_by_name(name, force=True)
        places = topic.ledger.index.places()
        if acknowledged > places.count:
            raise MetadataRefusedError(f"the topic has {places.count} entries, not {acknowledged}")
        await topic.create_subscription(name, EARLIEST, tuple(properties.items()))
        cursor = subscription_of(topic, name).cursor
        try:
            if acknowledged:
                cursor.ack_cumulative(places.place(acknowledged - 1))
            if given.get("numbers"):
                cursor.set_properties(given["numbers"])
            await cursor.wait_persisted()
        except CursorError as error:
            raise ServiceNotReadyError(f"subscription {name!r}: {error}") from error

    await on_topic(call, work)


async def post(call: AdminCall) -> None:
    name = call.subscription()
    given = _ACKS.check(await call.json(BODY_BYTES_MAX), "acknowledgements", MalformedRequestError)
    ranges = [_pair(each) for each in given.get("ranges", [])]
    batches = [_batch(each) for each in given.get("batches", [])]

    async def work(topic: Topic) -> None:
        check_being_restored(topic)
        topic.used_at = trio.current_time()
        cursor, places = subscription_of(topic, name).cursor, topic.ledger.index.places()
        if any(last >= places.count for _, last in ranges) or any(number >= places.count for number, _ in batches):
            raise MetadataRefusedError(f"the topic has {places.count} entries: an acknowledged one is none of them")
        try:
            for first, last in ranges:
                for start in range(first, last + 1, _STEP):
                    numbers: Iterable[int] = range(start, min(start + _STEP, last + 1))
                    cursor.ack_individual([places.place(number) for number in numbers])
                    await trio.lowlevel.checkpoint()
            for index, (number, words) in enumerate(batches):
                cursor.ack_batch(places.place(number), words)
                if index % _STEP == 0:
                    await trio.lowlevel.checkpoint()
            await cursor.wait_persisted()
        except CursorError as error:
            raise ServiceNotReadyError(f"subscription {name!r}: {error}") from error

    await on_topic(call, work)


def _pair(given: list[int]) -> tuple[int, int]:
    if len(given) != 2 or given[0] > given[1]:
        raise MalformedRequestError("a range has a first and a last entry")
    return given[0], given[1]


def _batch(given: list[Any]) -> tuple[int, list[int]]:
    if len(given) != 2 or isinstance(given[0], list) or not isinstance(given[1], list):
        raise MalformedRequestError("a batch has the number of its entry and a list of words")
    return given[0], given[1]
