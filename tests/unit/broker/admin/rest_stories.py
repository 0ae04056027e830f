"""Stories of the REST as text, in testdata/*.txt: a request a line, with what has to be answered.

    story test_a_policy_of_a_topic_goes_first what=retention,persistence
    POST NS/$what KEPT -> 204
    GET TOPIC/$what?applied=true -> 200 KEPT+{"retentionSizeInMB":1}
    POST NS/$what 5 -> 412 ~a part of the reason
    PUT TOPIC/unload -> 307 http://other:8080/admin/v2/persistent/public/default/a/unload

A path may begin with a name of `PATHS`, a body with one of `VALUES`, to which `+` adds fields. Every refusal has a
reason. A story plays in the cluster of `ClusterRest`; one that begins with `alone` over the administration alone,
and one with `cluster OPTIONS` in a cluster with these options. Other verbs are the methods of `Player`.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import trio

from broker import errors
from broker.context import Context
from broker.ownership.bundles import Bundle, even
from broker.ownership.lookup import Connect, Redirect
from broker.ownership.values import LocalBroker, encode_leader
from broker.topics.schemas.registry import Schemas
from quire.ledger.position import Position
from quire.metadata.store import ANY_VERSION
from quire.wire.pulsar.names import NamespaceName, TopicName
from tests.support.stories.text import Step, Story, StoryError
from tests.unit.broker.admin.cluster_fakes import HERE, ME, OTHER, THERE, ClusterRest, on_cluster
from tests.unit.broker.admin.fakes import TOPICS, Rest
from tests.unit.broker.peers import OPTIONS
from tests.unit.managed_ledger.cluster import CONFIG, Cluster
from tests.unit.managed_ledger.fake_ledgers import fake_world, running

PATHS = {
    "NS": "/admin/v2/namespaces/public/default",
    "TOPIC": f"{TOPICS}/a",
    "TOPICS": TOPICS,
    "SCHEMAS": "/admin/v2/schemas/public/default/a",
    "LOOKUP": "/lookup/v2/topic/persistent/public/default",
    **{name.upper(): f"/admin/v2/{name}" for name in ("namespaces", "tenants", "clusters", "brokers", "bookies")},
    "QUOTAS": "/admin/v2/resource-quotas",
    "GROUPS": "/admin/v2/resourcegroups",
    "STATS": "/admin/v2/broker-stats",
}
RATE = {
    "dispatchThrottlingRateInMsg": 10,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 2,
}
FIRST = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
SECOND = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
VALUES: dict[str, Any] = {
    "AGE": {"limitSize": -1, "limitTime": 60, "policy": "consumer_backlog_eviction"},
    "AUTO": {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
    "CAUGHT_UP": {
        "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        "maxInactiveDurationSeconds": 5,
        "deleteWhileInactive": True,
    },
    "COPIES": {
        "bookkeeperEnsemble": 3,
        "bookkeeperWriteQuorum": 3,
        "bookkeeperAckQuorum": 2,
        "managedLedgerMaxMarkDeleteRate": 0.0,
    },
    "DELAYED": {"tickTime": 500, "active": True, "maxDeliveryDelayInMillis": 60_000},
    "KEPT": {"retentionTimeInMinutes": 10, "retentionSizeInMB": 100},
    "QUOTA": {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"},
    "RATE": RATE,
    "FIRST": {"type": "AVRO", "schema": FIRST, "properties": {}},
    "SECOND": {"type": "AVRO", "schema": SECOND, "properties": {}},
    "OTHER": {"type": "AVRO", "schema": '{"type":"record","name":"R","fields":[{"name":"z","type":"string"}]}'},
    "PAIRS": {
        "type": "KEY_VALUE",
        "schema": json.dumps({"key": "", "value": json.loads(FIRST)}, separators=(",", ":")),
        "properties": {"key.schema.type": "STRING", "value.schema.type": "AVRO"},
    },
    "NO_SUBSCRIPTIONS": {"allowAutoSubscriptionCreation": False},
    "SEVEN": 7,
    "LONG": {"k": "v" * (33 << 10)},
    "LONG_PROPERTIES": {"ledgerId": 1, "entryId": 1, "properties": {"k": "v" * (33 << 10)}},
    "NOT_OBEYED": {
        "migrated": True,
        "offload_policies": {"managedLedgerOffloadDriver": "aws-s3"},
        "backlog_quota_map": {"destination_storage": {"limit": 1, "policy": "producer_exception"}},
        "properties": {"a": "b"},
    },
    "LARGE": {"type": "AVRO", "schema": "x" * 1_100_000},
}


def value_of(text: str) -> Any:
    """Return a value: JSON, or one of `VALUES`, with fields that are added."""
    named = re.fullmatch(r"([A-Z]\w*)(?:\+(\{.*\}))?", text)
    if named is None:
        return json.loads(text)
    found = VALUES[named[1]]
    return {**found, **json.loads(named[2])} if named[2] else found


def path_of(text: str) -> str:
    head, slash, rest = text.partition("/")
    name, question, query = head.partition("?")
    return f"{PATHS[name]}{question}{query}{slash}{rest}" if name in PATHS else text


def shown(part: object) -> str:
    """Return a part of a recorded call as stories write it."""
    if isinstance(part, tuple) and not isinstance(part, Position):
        return ",".join(map(str, part)) or "-"
    return json.dumps(part) if isinstance(part, dict) else str(part)


def check(found: str, expected: str) -> None:
    """Compare a text with one that is expected: a part `~text`, no part `!text`, a pattern `/text/`, or all of it."""
    kind, part = expected[:1], expected[1:]
    if kind in ("~", "!"):
        assert (part in found) == (kind == "~"), found
    elif kind == "/" and expected.endswith("/"):
        assert re.fullmatch(part[:-1], found), found
    else:
        assert found == expected, found


class Player:
    """Plays the steps of one story."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        self.administration = rest.administration
        self.response: httpx2.Response

    @property
    def cluster(self) -> ClusterRest:
        assert isinstance(self.rest, ClusterRest), "the story plays in no cluster"
        return self.rest

    async def play(self, text: str) -> None:
        step, _, expected = text.partition(" -> ")
        verb, _, rest = step.partition(" ")
        if verb.isupper():
            await self.request(verb, *rest.split(" ", 1), expected=expected)
        else:
            await getattr(self, f"step_{verb}")(rest, expected)

    async def request(self, method: str, path: str, body: str = "", *, expected: str) -> None:
        options = {"json": value_of(body)} if body else {}
        response = self.response = await self.rest.ask(method, path_of(path), **options)
        status, _, answer = expected.partition(" ")
        code = response.status_code
        assert code in (200, 202) if status == "2xx" else code == int(status), f"{code} {response.text}"
        if code == 307:
            check(response.headers["location"], answer)
        elif code == 204:
            assert not response.content, response.text
        elif answer[:1] in ("~", "!", "/"):
            check(response.text if code < 400 else response.json()["reason"], answer)
        elif answer:
            assert response.json() == value_of(answer), response.text
        elif code >= 400:
            assert response.json()["reason"]

    async def step_refused(self, rest: str, expected: str) -> None:
        """Make a request that the administration refuses by raising an error, whose text is the reason."""
        name, request = rest.split(" ", 1)
        await self.step_fails(name, "")
        await self.request(*request.split(" ", 2), expected=f'{expected} {{"reason":"x"}}')

    async def step_allowed(self, rest: str, expected: str) -> None:
        """Compare the methods that the last answer allows."""
        assert set(self.response.headers["allow"].split(", ")) == set(expected.split(", "))

    async def step_set(self, rest: str, expected: str) -> None:
        """Set a policy, `RESOURCE:VALUE` of NS or TOPIC, that is not there; it is read back until it is deleted."""
        whose, resource, value = re.split("[ :]", rest)
        for method, body, answer in (
            ("GET", "", "200"),
            ("POST", value, "204"),
            ("GET", "", f"200 {value}"),
            ("DELETE", "", "204"),
            ("GET", "", "200"),
            ("DELETE", "", "204"),
        ):
            await self.request(method, f"{whose}/{resource}", body, expected=answer)

    async def step_calls(self, rest: str, expected: str) -> None:
        """Compare the calls since the last look: of the administration, `except` one kind, or of `ownership`."""
        asked = self.cluster.ownership.asked if rest == "ownership" else self.administration.asked
        calls = [" ".join(map(shown, call)) for call in asked if call[0] != rest.removeprefix("except ")]
        asked.clear()
        check("; ".join(calls) or "none", expected)

    async def step_called(self, rest: str, expected: str) -> None:
        """Look for one call among others."""
        assert rest in [" ".join(map(shown, call)) for call in self.administration.asked]

    async def step_fails(self, rest: str, expected: str) -> None:
        """Let the administration fail: with a name of an error and its text."""
        name, _, text = rest.partition(" ")
        self.administration.error = getattr(errors, name)(text or "x")

    async def step_has(self, rest: str, expected: str) -> None:
        """Set a field of the administration."""
        name, _, value = rest.partition(" ")
        setattr(self.administration, name, Position(*json.loads(value)) if name == "position" else json.loads(value))

    async def step_owner(self, rest: str, expected: str) -> None:
        """Give a bundle an owner, `me` or `other`."""
        bundle, _, owner = rest.partition(" ")
        await self.cluster.own(bundle, ME if owner == "me" else OTHER)

    async def step_owned(self, rest: str, expected: str) -> None:
        """Let this broker own the first bundle."""
        bundles: tuple[Bundle, ...] = even(NamespaceName("public", "default"), 4).all()
        self.cluster.ownership.bundles = [bundles[0]]

    async def step_lookups(self, rest: str, expected: str) -> None:
        """Let lookups answer `here`, `there` or with a redirect to `ask there`."""
        redirect = Redirect(THERE.broker_url, THERE.web_url, authoritative=True)
        answers: dict[str, Connect | Redirect] = {"here": HERE, "there": THERE, "ask there": redirect}
        self.cluster.ownership.found = answers[rest]

    async def step_store(self, rest: str, expected: str) -> None:
        """Store a node."""
        path, _, value = rest.partition(" ")
        if await self.cluster.store.get(path) is None:
            await self.cluster.store.create(path, value.encode(), make_parents=True)
        else:
            await self.cluster.store.put(path, value.encode(), ANY_VERSION)

    async def step_leader(self, rest: str, expected: str) -> None:
        leader = LocalBroker(id=rest, broker_url="pulsar://a", web_url=f"http://{rest}")
        await self.cluster.store.create("/loadbalance/leader", encode_leader(leader))

    async def step_node(self, rest: str, expected: str) -> None:
        """Compare the value of a node; `none` if there is none."""
        node = await self.cluster.store.get(rest)
        check("none" if node is None else node.value.decode(), expected)

    async def step_policies(self, rest: str, expected: str) -> None:
        """Compare the stored policies of the topic `a`."""
        found = await self.cluster.policies.get(TopicName.parse("persistent://public/default/a"))
        assert found == json.loads(expected), found


@asynccontextmanager
async def stage(setting: str) -> AsyncIterator[Rest]:
    """Open what the first line of a story asks for."""
    name, _, options = setting.partition(" ")
    if name == "alone":
        rest = Rest()
        async with rest.served():
            yield rest
    elif name == "schemas":
        cluster = Cluster()
        async with on_cluster() as rest, running(cluster.ledgers), trio.open_nursery() as nursery:
            cluster.ledgers.store = rest.store
            context = Context(fake_world(), OPTIONS, nursery)
            rest.administration.kept_schemas = Schemas(context, rest.store, cluster.ledgers, CONFIG, rest.policies)
            yield rest
            nursery.cancel_scope.cancel()
    else:
        async with on_cluster(**json.loads(options or "{}")) as rest:
            yield rest


async def play(story: Story) -> None:
    """Play a story; StoryError of the first step that fails."""
    first, *others = story.steps
    is_setting = first.text.split()[0] in ("alone", "schemas", "cluster")
    steps: list[Step] = others if is_setting else story.steps
    async with stage(first.text if is_setting else "cluster") as rest:
        player = Player(rest)
        for step in steps:
            try:
                await player.play(step.text)
            except (AssertionError, LookupError, ValueError, TypeError, AttributeError) as error:
                raise StoryError(f"{step.where}: {step.text}: {type(error).__name__}: {error}") from error
