"""Steps of a job that offloads closed ledgers of a topic to files; `managed_ledger.offloading` decides.

GET      {topic}/quireOffload    {"ledgers":[{"ledgerId":3,"entries":9,"size":900,"closedMs":1,"uid":"",
                                 "complete":false,"driver":"","bookkeeperDeleted":false}]}: the closed ledgers that have
                                 entries
PUT      {topic}/quireOffload    body: {"ledger":3,"uid":UUID,"instead":"","driver":"quire-parquet"}; 204 the uid is
                                 stored; 409 the ledger is gone, not closed, offloaded, or its uid is not `instead`
POST     {topic}/quireOffload    body: {"ledger":3,"uid":UUID}; 204 it is complete; 409 the list has another uid
DELETE   {topic}/quireOffload?ledger=3&uid=UUID    204 it is not offloaded; 409 the list has another uid, or the bookies
                                 have no copy

Each can be repeated. All are compare-and-sets of the list, so that a broker that has lost the topic does not answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from starlette.responses import Response

from broker.admin.errors import MalformedRequestError, StateConflictError
from broker.admin.positions.every import on_topic
from broker.admin.requests import INT64_MAX, AdminCall
from broker.admin.resource import answer
from broker.errors import ServiceNotReadyError
from broker.topics.topic import Topic
from managed_ledger.errors import ManagedLedgerError, OffloadRefusedError
from managed_ledger.ledger_list import LedgerList
from managed_ledger.offloading import closed_ledgers, completed, prepared, released, state_of
from quire.service.web.parameters import Parameter, WholeNumber
from quire.service.web.shapes import Record, Text, Whole

_PREPARE: Final = Record(
    {"ledger": Whole(0, INT64_MAX), "uid": Text(1), "instead": Text(), "driver": Text(1)},
    needed=("ledger", "uid", "driver"),
)
_COMPLETE: Final = Record({"ledger": Whole(0, INT64_MAX), "uid": Text(1)}, needed=("ledger", "uid"))
_LEDGER: Final = WholeNumber("ledger", "The ledger.", 0, INT64_MAX, needed=True)
_UID: Final = Parameter("uid", "The uid of its object.")


async def get(call: AdminCall) -> Response:
    found: list[dict[str, Any]] = []

    def look(value: LedgerList) -> LedgerList:
        for info in closed_ledgers(value):
            state = state_of(info)
            found.append(
                {
                    "ledgerId": info.ledger_id,
                    "entries": info.entries,
                    "size": info.size,
                    "closedMs": info.closed_ms,
                    "uid": state.uid,
                    "complete": state.complete,
                    "driver": state.driver,
                    "bookkeeperDeleted": state.bookkeeper_deleted,
                }
            )
        return replace(value)  # stored again, which only the owner can: files are removed by this answer

    await _change(call, look)
    return answer({"ledgers": found})


async def prepare(call: AdminCall) -> None:
    given = _PREPARE.check(await call.json(), "an offloading", MalformedRequestError)
    uid, now_ms = _uid(given["uid"]), call.cluster.wall_ms()

    def change(value: LedgerList) -> LedgerList:
        instead, driver = given.get("instead") or "", given["driver"]
        return prepared(value, given["ledger"], uid, instead=instead, driver=driver, now_ms=now_ms)

    await _change(call, change)


async def complete(call: AdminCall) -> None:
    given = _COMPLETE.check(await call.json(), "an offloading", MalformedRequestError)
    uid, now_ms = _uid(given["uid"]), call.cluster.wall_ms()
    await _change(call, lambda value: completed(value, given["ledger"], uid, now_ms=now_ms))


async def release(call: AdminCall) -> None:
    ledger_id, uid = call.whole(_LEDGER) or 0, _uid(call.given(_UID) or "")
    await _change(call, lambda value: released(value, ledger_id, uid))


async def _change(call: AdminCall, change: Callable[[LedgerList], LedgerList]) -> None:
    async def work(topic: Topic) -> str:
        """Return why it was refused; empty: it was not."""
        topic.check_open()
        try:
            await topic.ledger.update_list(change)
        except OffloadRefusedError as error:
            return f"topic {topic.name.full}: {error}"
        except ManagedLedgerError as error:
            raise ServiceNotReadyError(f"topic {topic.name.full}: {error}") from error
        return ""

    if refusal := await on_topic(call, work):
        raise StateConflictError(refusal)


def _uid(text: str) -> UUID:
    """Parse a uid. Raises MalformedRequestError.

    >>> _uid("{12345678-1234-5678-1234-567812345678}")
    Traceback (most recent call last):
    broker.admin.errors.MalformedRequestError: '{12345678-1234-5678-1234-567812345678}' is not a UUID
    """
    try:
        found = UUID(text)
    except ValueError:
        found = None
    if found is None or str(found) != text:
        raise MalformedRequestError(f"{text[:80]!a} is not a UUID")
    return found
