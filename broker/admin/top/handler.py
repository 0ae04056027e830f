"""GET /admin/v2/quireTop?sort=rate|lag|age&count=30&filter=&local=: what is going on, for `quire top`.

{"brokers":[{"broker","topics","msgRateIn","msgThroughputIn","msgRateOut","msgThroughputOut"}],
 "topics":[{"topic","broker","msgRateIn","msgThroughputIn","msgRateOut","msgThroughputOut","backlog","backlogSize",
            "ageSeconds","producers","consumers","subscriptions"}],
 "stuck":[{"topic","broker","subscription","backlog","cause","state","sentence","remedy"}],
 "bookies":[{"bookie","state","latencyMs","pendingReads","free","total"}],
 "repairs":{"underReplicated","more","disabled"}, "silent":[broker ids]}

The broker that is asked asks the others, with `local`, and joins their answers: one request for each look, whatever the
number of topics. Topics are looked at in short steps, and only the first rows are read from ledgers, for their age.

`backlog` is that of the slowest subscription, in entries. `age` ranks by when the ledger was closed that the slowest
subscription reads: the time of an entry is only read of the rows that are answered. A subscription stands still
(`stuck`) if it has a backlog and nothing was delivered in the last statsUpdateFrequencyInSecs. `state` of a bookie:
writable, readonly, lost (it has a cookie and is not registered). -1: unknown.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

import trio
from starlette.responses import Response

from broker.admin.cluster.brokers import living
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.admin.top.ranking import SORTS, FirstRows, joined
from broker.background import AT_ONCE_MAX
from broker.dispatch.publish_time import time_of
from broker.dispatch.subscription import Subscription
from broker.errors import BrokerError, translated
from broker.measures import NOTHING, Rates
from broker.ownership.brokers import BROKERS
from broker.ownership.values import decode_report
from broker.topics.backlog_size import size_behind
from broker.topics.topic import Topic
from managed_ledger.errors import ManagedLedgerError
from quire.metadata.errors import NoNodeError
from quire.metadata.store import MetadataStore
from quire.service.web.parameters import Flag, OneOf, Parameter, WholeNumber
from quire.wire.pulsar.errors import PulsarWireError
from quire.world.tasks import for_each

PARTS_IN_STEP: Final = 200
"""Topics and subscriptions."""
COUNT: Final = 30
COUNT_MAX: Final = 200
MARKS_MAX: Final = 1000
"""Marks of ledgers that lack copies that are counted."""
UNKNOWN: Final = -1
_SORT: Final = OneOf("sort", "Order of the topics.", SORTS, "rate")
_COUNT: Final = WholeNumber("count", "Topics and subscriptions that are wanted.", 1, COUNT_MAX)
_FILTER: Final = Parameter("filter", "Text that the names of the topics have.")
_LOCAL: Final = Flag("local", "Answer what this broker serves only.")


async def get(call: AdminCall) -> Response:
    sort, count, text = call.choice(_SORT), call.whole(_COUNT) or COUNT, call.given(_FILTER) or ""
    own = await _own(call, sort, count, text)
    if call.flag(_LOCAL):
        return answer(own)
    answers, silent = await _others(call, urlencode({"sort": sort, "count": count, "filter": text, "local": "true"}))
    found = joined([own, *answers], sort, count)
    found["silent"] = silent
    found["bookies"] = [each.as_json() for each in await call.cluster.bookies()]
    found["repairs"] = await repairs(call.cluster.metadata, call.cluster.ledgers_root)
    return answer(found)


async def _others(call: AdminCall, query: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the answers of the other brokers, and the ids of those that gave none."""
    answers: list[dict[str, Any]] = []
    silent: list[str] = []
    others = call.cluster.others
    if others is None:
        return answers, silent

    async def ask(broker: str) -> None:
        try:
            with translated(broker):
                node = await call.cluster.metadata.get(f"{BROKERS}/{broker}")
            if node is not None:
                url = others.url_of(decode_report(broker, node.value).broker)
                answers.append(await others.call(url, "GET", f"/admin/v2/quireTop?{query}"))
        except BrokerError:
            silent.append(broker)

    asked = [each for each in await living(call) if each != call.broker_id]
    await for_each(asked, ask, at_once=AT_ONCE_MAX, name=call.line)
    return answers, sorted(silent)


async def _own(call: AdminCall, sort: str, count: int, text: str) -> dict[str, Any]:
    """Return the rows of this broker."""
    first, stuck = FirstRows[Topic](count), FirstRows[tuple[Topic, Subscription]](count)
    now_ms, by_age = call.cluster.wall_ms(), sort == "age"
    number = 0
    messages_in = bytes_in = messages_out = bytes_out = 0.0  # (not Rates: to replace its fields costs most of the look)
    left = PARTS_IN_STEP
    for topic in list(call.cluster.loaded()):
        number += 1
        of = topic.context.measures.of
        rates = of(topic)
        backlog, out, slowest = 0, 0.0, None
        shown = not text or text in topic.name.full
        if rates is not NOTHING:
            messages_in, bytes_in = messages_in + rates.messages_in, bytes_in + rates.bytes_in
        for subscription in list(topic.subscriptions.values()):
            left -= 1
            if left <= 0:
                left = PARTS_IN_STEP
                await trio.lowlevel.checkpoint()
            behind, rate = subscription.cursor.backlog(), of(subscription)
            if rate is not NOTHING:
                out += rate.messages_out
                bytes_out += rate.bytes_out
            if behind:
                backlog = max(backlog, behind)
                if by_age:
                    slowest = _slower(slowest, subscription)
                if shown and not rate.messages_out:
                    stuck.add(behind, (topic, subscription))
        messages_out += out
        if shown:
            key = backlog if sort == "lag" else rates.messages_in + out
            first.add(_waiting_s(topic, slowest, now_ms) if by_age else key, topic)
        left -= 1
        if left <= 0:
            left = PARTS_IN_STEP
            await trio.lowlevel.checkpoint()
    total = Rates(messages_in=messages_in, bytes_in=bytes_in, messages_out=messages_out, bytes_out=bytes_out)
    rows = [await _row(topic, call.broker_id, now_ms) for topic in first.rows()]
    broker = {"broker": call.broker_id, "topics": number, **_rates(total)}
    waiting: list[dict[str, Any]] = []
    for each in stuck.rows():
        waiting.append(_stuck(call, *each))
        await trio.lowlevel.checkpoint()
    return {"brokers": [broker], "topics": rows, "stuck": waiting}


def _rates(rates: Rates) -> dict[str, float]:
    return {
        "msgRateIn": rates.messages_in,
        "msgThroughputIn": rates.bytes_in,
        "msgRateOut": rates.messages_out,
        "msgThroughputOut": rates.bytes_out,
    }


def _slower(slowest: Subscription | None, other: Subscription) -> Subscription | None:
    """Return the durable one of two subscriptions with a backlog whose first unacknowledged entry is older."""
    if not other.durable or (slowest is not None and slowest.cursor.mark_delete <= other.cursor.mark_delete):
        return slowest
    return other


def _waiting_s(topic: Topic, slowest: Subscription | None, now_ms: int) -> float:
    """Return about how long the oldest message waits, from memory; -1: none does."""
    if slowest is None:
        return UNKNOWN
    ledger_id = slowest.cursor.next_unacked(slowest.cursor.mark_delete).ledger_id
    closed = next(
        (each.closed_ms for each in topic.ledger.ledgers if each.ledger_id >= ledger_id and each.closed_ms), 0
    )
    return max(0, now_ms - closed) / 1000 if closed else 0.0


async def _row(topic: Topic, broker: str, now_ms: int) -> dict[str, Any]:
    measures = topic.context.measures
    rates, backlog, consumers, slowest, age = measures.of(topic), 0, 0, None, UNKNOWN
    messages_out = bytes_out = 0.0
    for number, each in enumerate(list(topic.subscriptions.values()), 1):
        behind, rate = each.cursor.backlog(), measures.of(each)
        messages_out, bytes_out = messages_out + rate.messages_out, bytes_out + rate.bytes_out
        backlog, consumers = max(backlog, behind), consumers + len(each.consumers)
        if behind:
            slowest = _slower(slowest, each)
        if not number % PARTS_IN_STEP:
            await trio.lowlevel.checkpoint()
    await trio.lowlevel.checkpoint()
    if slowest is not None:
        try:
            at = await time_of(topic.ledger, slowest.cursor.next_unacked(slowest.cursor.mark_delete))
            age = UNKNOWN if at is None else max(0, now_ms - at) // 1000
        except (ManagedLedgerError, PulsarWireError):
            age = UNKNOWN  # closed since, or the bookies are away: the next look shows it
    rates = rates._replace(messages_out=messages_out, bytes_out=bytes_out)
    return {
        "topic": topic.name.full,
        "broker": broker,
        **_rates(rates),
        "backlog": backlog,
        "backlogSize": 0 if slowest is None else size_behind(topic.ledger, slowest.cursor.mark_delete),
        "ageSeconds": age,
        "producers": len(topic.producers),
        "consumers": consumers,
        "subscriptions": len(topic.subscriptions),
    }


def _stuck(call: AdminCall, topic: Topic, subscription: Subscription) -> dict[str, Any]:
    told = call.administration.explain.told.delivery(topic, subscription)
    return {
        "topic": topic.name.full,
        "broker": call.broker_id,
        "subscription": subscription.name,
        "backlog": subscription.cursor.backlog(),
        "cause": told.code,
        "state": told.cause.state.value,
        "sentence": told.sentence,
        "remedy": told.remedy,
    }


async def repairs(metadata: MetadataStore, root: str) -> dict[str, Any]:
    """Return how many ledgers lack copies, counted up to MARKS_MAX, and whether auto recovery is disabled. Raises
    MetadataUnavailableError."""
    place = f"{root}/underreplication"
    with translated("repairs"):
        count, waiting = 0, [f"{place}/ledgers"]
        while waiting and count < MARKS_MAX:
            path = waiting.pop()
            if path.rpartition("/")[2].startswith("urL"):
                count += 1
                continue
            try:
                waiting += [f"{path}/{name}" for name in await metadata.children(path)]
            except NoNodeError:
                await trio.lowlevel.checkpoint()
        disabled = await metadata.get(f"{place}/disable") is not None
    return {"underReplicated": count, "more": bool(waiting), "disabled": disabled}
