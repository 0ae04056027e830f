"""Handlers of the data behind the cluster pages: for super users, as the admin REST has it for the same things.

Below /console/api/cluster:

GET      brokers                                        brokers with their load, and the bundles of all
GET      bundles/{tenant}/{namespace}                   the ring of a namespace, with topics on it
POST     survey                                         begin to read the metadata of all ledgers; 200 its progress
GET      ledgers?bookie=&harm=&owner=&from=&limit=      rows of the survey, and the share of each bookie
GET      ledgers?topic=                                 the ledgers of a topic, read now
GET      loss/{bookie}                                  what if this bookie went, from the survey
GET      bookies                                        bookies and disks
GET      repairs                                        marks, locks, rate, time left
GET      warnings?after=                                latest warnings of all processes that can be reached
GET      repairs/events, survey/events, warnings/events, brokers/events     the same, as server-sent events

Bundles are unloaded and split by the admin REST. What comes from the survey names how many ledgers were `examined`, of
the `total` there are.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import trio
from starlette.responses import Response

from broker.admin.errors import NotThereError, PreconditionError
from broker.admin.requests import AdminCall, Service
from broker.admin.resource import answer
from broker.console.cluster_bundles import brokers_of, ring_of
from broker.console.cluster_disks import Disks
from broker.console.cluster_events import EventStream, Streams
from broker.console.cluster_ledgers import BookieShare, LedgerTable, shares
from broker.console.cluster_loss import Harm, Loss, Room, loss_json
from broker.console.cluster_ports import ClusterParts
from broker.console.cluster_repairs import Repairs
from broker.console.cluster_rows import ROWS_MAX, RowChoice, RowScan, row_json, shares_json
from broker.console.cluster_sources import Sources, fetched
from broker.console.cluster_survey import Survey, Surveys
from broker.console.cluster_warnings import WarningFeed
from broker.errors import TopicNotFoundError, translated
from managed_ledger import ledger_list
from managed_ledger.offloading import is_in_object
from quire.ledger.bookies.disk_space import ask_disk_space
from quire.ledger.errors import NoSuchLedgerError
from quire.ledger.placement.policy import Cluster
from quire.metadata.errors import MalformedMetadataError, UnsupportedLayoutError
from quire.service.web.parameters import OneOf, Parameter, WholeNumber
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import TopicName

BASE: Final = "/console/api/cluster"
ROWS_IN_STEP: Final = 100
EVERY_S: Final = 2.0
LEDGERS_OF_TOPIC: Final = 50

_BOOKIE = Parameter("bookie", "Bookie that has copies.")
_OWNER = Parameter("owner", "Part of the name of the topic.")
_TOPIC = Parameter("topic", "Topic whose ledgers are read now.")
_HARM = OneOf("harm", "State that a ledger has at least.", tuple(each.name for each in Harm), Harm.NONE.name)
_FROM = WholeNumber("from", "Place to go on at.", 0, 1 << 40)
_LIMIT = WholeNumber("limit", "Rows at most.", 1, ROWS_MAX)
_AFTER = WholeNumber("after", "Last number that is known; 0 for none.", 0, 1 << 53)


class ClusterPages:
    """Data of the cluster pages of one broker."""

    def __init__(self, service: Service, parts: ClusterParts) -> None:
        assert service.cluster is not None, "the console needs a cluster"
        cluster = service.cluster
        self._cluster = cluster
        self._parts = parts
        self._root = cluster.ledgers_root
        self._surveys = Surveys(parts.ledgers, parts.nursery, cluster.wall_ms)
        fetch = partial(fetched, parts.network, parts.bookie_tls)
        self._disks = Disks(cluster.metadata, self._disk_space, fetch, parts.cluster, self._root, parts.own_bookies)
        self._repairs = Repairs(cluster.metadata, parts.ledgers, self._root)
        self._streams = Streams()
        self._shares: tuple[Survey, int, dict[int, BookieShare]] | None = None
        sources = Sources(cluster, self._disks, parts, fetch)
        self._feed = WarningFeed(lambda: cluster.broker_id or service.web_url().partition("://")[2], sources.all)

    # Brokers and bundles

    async def brokers(self, call: AdminCall) -> Response:
        """Answer the brokers with their load, and the bundles of all."""
        return answer(await brokers_of(call))

    async def brokers_events(self, call: AdminCall) -> EventStream:
        """Follow the brokers and bundles."""
        return self._streams.make(partial(brokers_of, call), EVERY_S)

    async def ring(self, call: AdminCall) -> Response:
        """Answer the ring of a namespace."""
        return answer(await ring_of(call, call.namespace()))

    # Ledgers

    async def survey(self, call: AdminCall) -> Response:
        """Begin to read the metadata of all ledgers, unless that is under way."""
        return answer(self._surveys.start().as_json())

    async def survey_events(self, call: AdminCall) -> EventStream:
        """Follow the survey."""

        async def ask() -> Any:
            await trio.lowlevel.checkpoint()
            found = self._surveys.current()
            return None if found is None else found.as_json()

        return self._streams.make(ask, 0.5)

    async def ledgers(self, call: AdminCall) -> Response:
        """Answer the rows of the map of ledgers."""
        states = await self._states(call)
        if (topic := call.given(_TOPIC)) is not None:
            return answer(await self._of_topic(call, topic, states))
        survey = self._surveys.current() or self._surveys.start()
        table = survey.table
        wanted = RowChoice(self._number(table, call.given(_BOOKIE)), Harm[call.choice(_HARM)], call.given(_OWNER) or "")
        scan = RowScan(table, wanted, _live(table, states), call.whole(_FROM) or 0, call.whole(_LIMIT) or ROWS_MAX)
        while scan.step(ROWS_IN_STEP):
            await trio.lowlevel.checkpoint()
        marked = self._repairs.marked()
        return answer(
            {
                "survey": survey.as_json(),
                "bookies": shares_json(table, await self._shares_of(survey), states),
                "rows": [row_json(row, table, harm, marked) for row, harm in scan.found],
                "next": scan.next_place,
                "looked": scan.place,
            }
        )

    def _number(self, table: LedgerTable, bookie_id: str | None) -> int | None:
        if not bookie_id:
            return None
        number = table.number(bookie_id)
        return -1 if number is None else number

    async def _shares_of(self, survey: Survey) -> dict[int, BookieShare]:
        """Return the shares of bookies, counted on from where the last request ended."""
        done, into = 0, dict[int, BookieShare]()
        if self._shares is not None and self._shares[0] is survey:
            _, done, into = self._shares
        while done < len(survey.table):
            shares(survey.table, done, ROWS_IN_STEP, into)
            done = min(done + ROWS_IN_STEP, len(survey.table))
            self._shares = (survey, done, into)
            await trio.lowlevel.checkpoint()
            if self._shares[0] is survey:  # another request may have counted on in the meantime
                _, done, into = self._shares
        return into

    async def _of_topic(self, call: AdminCall, topic: str, states: dict[str, str]) -> dict[str, Any]:
        try:
            path = f"/managed-ledgers/{TopicName.parse(topic).managed_ledger_path}"
        except InvalidNameError as error:
            raise PreconditionError(f"topic: {error}") from error
        with translated(topic):
            node = await self._cluster.metadata.get(path)
        if node is None:
            raise TopicNotFoundError(f"topic {topic} does not exist, or has no log of its own")
        infos = ledger_list.decode(node.value).ledgers
        ids, elsewhere = [each.ledger_id for each in infos], {each.ledger_id for each in infos if is_in_object(each)}
        first, limit = call.whole(_FROM) or 0, min(call.whole(_LIMIT) or LEDGERS_OF_TOPIC, LEDGERS_OF_TOPIC)
        table, gone = LedgerTable(), []
        for ledger_id in ids[first : first + limit]:
            try:
                with translated(topic):
                    table.add(ledger_id, await self._parts.ledgers.read_metadata(ledger_id))
            except (NoSuchLedgerError, MalformedMetadataError, UnsupportedLayoutError):
                if ledger_id not in elsewhere:
                    gone.append(ledger_id)
        scan = RowScan(table, RowChoice(), _live(table, states), 0, limit)
        scan.step(limit + 1)
        into: dict[int, BookieShare] = {}
        shares(table, 0, len(table), into)
        end = first + limit
        marked = self._repairs.marked()
        return {
            "topic": topic,
            "examined": len(table),
            "total": len(ids),
            "withoutMetadata": gone,
            "bookies": shares_json(table, into, states),
            "rows": [row_json(row, table, harm, marked) for row, harm in scan.found],
            "next": end if end < len(ids) else None,
        }

    async def loss(self, call: AdminCall) -> Response:
        """Answer what would be lost with a bookie."""
        bookie_id = call.part("bookie")
        states = await self._states(call)
        survey = self._surveys.current() or self._surveys.start()
        table = survey.table
        if bookie_id not in states and table.number(bookie_id) is None:
            raise NotThereError(f"there is no bookie {bookie_id[:100]!a}")
        number = self._number(table, bookie_id)
        before = _live(table, states)
        loss = Loss(-1 if number is None else number, before - {number}, before)
        for place in range(len(table)):
            loss.add(table.row(place))
            if place % ROWS_IN_STEP == 0:
                await trio.lowlevel.checkpoint()
        survivors = frozenset(each for each, state in states.items() if state != "gone" and each != bookie_id)
        room = await self._room(loss, table, bookie_id, survivors)
        found = loss_json(loss, room, table, survey.total)
        found |= {"bookie": bookie_id, "state": states.get(bookie_id, "unknown"), "survey": survey.as_json()}
        return answer(found)

    async def _room(self, loss: Loss, table: LedgerTable, bookie_id: str, survivors: frozenset[str]) -> Room:
        now = self._parts.cluster()
        without = Cluster(
            writable=tuple(each for each in now.writable if each != bookie_id),
            read_only=now.read_only - {bookie_id},
            quarantined=now.quarantined - {bookie_id},
            locations=now.locations,
            groups=now.groups,
        )
        policy, room = self._parts.placement_in(without), Room()
        for key, count in loss.ensembles.items():
            room.examine(key, count, table.bookies, survivors, policy)
            await trio.lowlevel.checkpoint()
        room.examine_new(policy)
        return room

    # Bookies

    async def _disk_space(self, bookie_id: str) -> tuple[int, int]:
        return await ask_disk_space(self._parts.ledgers.bookies, bookie_id)

    async def bookies(self, call: AdminCall) -> Response:
        """Answer the bookies with their disks."""
        with translated("bookies"):
            return answer(await self._disks.look())

    async def repairs(self, call: AdminCall) -> Response:
        """Answer the progress of auto recovery."""
        with translated("repairs"):
            return answer(await self._look_at_repairs())

    async def repairs_events(self, call: AdminCall) -> EventStream:
        """Follow the progress of auto recovery."""
        return self._streams.make(self._look_at_repairs, EVERY_S)

    async def _look_at_repairs(self) -> dict[str, Any]:
        states = await self._disks.states()
        live = frozenset(each for each, state in states.items() if state != "gone")
        found = await self._repairs.look(live)
        return {**found, "bookies": [{"bookie": each, "state": state} for each, state in states.items()]}

    async def _states(self, call: AdminCall) -> dict[str, str]:
        with translated("bookies"):
            return await self._disks.states()

    # Warnings

    async def warnings(self, call: AdminCall) -> Response:
        """Answer the latest warnings of all processes that can be reached."""
        with translated("processes"):
            await self._feed.refresh()
        return answer(self._feed.after(call.whole(_AFTER) or 0))

    async def warnings_events(self, call: AdminCall) -> EventStream:
        """Follow the latest warnings: each event has the new lines."""
        last, before = call.whole(_AFTER) or 0, list[Any]()

        async def ask() -> Any:
            nonlocal last, before
            await self._feed.refresh()
            found = self._feed.after(last)
            if not found["lines"] and found["sources"] == before:
                return None
            last, before = found["newest"], found["sources"]
            return found

        return self._streams.make(ask, 1.0)


def _live(table: LedgerTable, states: dict[str, str]) -> frozenset[int]:
    """Return the numbers of the bookies that answer."""
    there = {each for each, state in states.items() if state != "gone"}
    return frozenset(number for number, bookie in enumerate(table.bookies) if bookie in there)
