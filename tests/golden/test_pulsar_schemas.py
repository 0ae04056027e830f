"""Schemas that Apache Pulsar 4.2.4 left: read and written again byte for byte, taken over and continued.

tests/golden/pulsar/README.md says how the files were made: the Python client gave the topic `typed` two JSON schemas,
and the brokers gave __change_events an Avro schema.
"""

from __future__ import annotations

import json
import re

import pytest
import trio

from broker.server import Broker
from broker.topics.policies import TopicPolicies
from broker.topics.schemas import stored
from broker.topics.schemas.schema import Schema, SchemaType
from broker.topics.schemas.storage import ledger_metadata
from broker.topics.schemas.strategies import SchemaRules, Strategy
from managed_ledger.config import LogConfig
from quire.wire.pulsar.names import TopicName
from tests.golden.pulsar_files import MOMENTS, ROOT, entries, ledgers, nodes
from tests.golden.takeover import KEEP, taken_over
from tests.unit.broker.peers import OPTIONS
from tests.unit.managed_ledger.fake_ledgers import fake_world

TYPED = TopicName.parse("persistent://public/default/typed")
NEW = Schema(SchemaType.JSON, b'{"type":"record","name":"C","fields":[]}', {"by": "us"})


def locators(moment: str) -> dict[str, bytes]:
    """Values of the nodes of schemas by id."""
    pattern = re.compile(rf"{ROOT}{stored.ROOT}/([^/]+/[^/]+/[^/]+)")
    return {found[1]: value for path, value in nodes(moment).items() if (found := pattern.fullmatch(path))}


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_the_original_stored_is_written_again_byte_for_byte(moment: str) -> None:
    found = locators(moment)
    assert {key: len(stored.decode_locator(value).index) for key, value in found.items()} == {
        "public/default/__change_events": 1,
        "public/dedup/__change_events": 1,
        "public/default/typed": 2,
    }
    for key, value in found.items():
        locator = stored.decode_locator(value)
        assert stored.encode_locator(locator) == value
        for number, place in enumerate(locator.index):
            entry = entries(moment)[place.ledger_id][place.entry_id]
            version = stored.decode_entry(number, entry)
            assert version.schema.hash == place.hash
            before = stored.Locator(locator.index[:number]) if number else None
            assert stored.encode_entry(key, version, before) == entry
            made = {name: text.decode() for name, text in ledger_metadata(key)}
            assert made == ledgers(moment)[place.ledger_id]["customMetadata"]
            assert ledgers(moment)[place.ledger_id]["passwordHex"] == ""


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_topic_that_is_taken_over_keeps_its_schemas_and_gets_more(moment: str) -> None:
    async with taken_over(moment) as left, left.broker() as factory, trio.open_nursery() as nursery:
        policies = TopicPolicies(left.store, LogConfig.of(KEEP))
        broker = Broker(fake_world(), left.store, factory, OPTIONS, nursery, policies=policies)
        schemas = broker.topics.schemas
        found = await schemas.versions(TYPED)
        names = [[field["name"] for field in json.loads(each.schema.data)["fields"]] for each in found]
        assert names == [["name", "n"], ["name", "n", "extra"]]
        assert (await schemas.rules(TYPED)).strategy is Strategy.ALWAYS_COMPATIBLE, "as the namespace says"
        assert await schemas.find_version(TYPED, found[0].schema) == 0
        assert await schemas.register(TYPED, NEW, SchemaRules(strategy=Strategy.ALWAYS_COMPATIBLE)) == 2
        node = await left.store.get("/schemas/public/default/typed")
        assert node is not None
        locator = stored.decode_locator(node.value)
        assert stored.encode_locator(stored.Locator(locator.index[:2])) == locators(moment)["public/default/typed"]
        events = await schemas.newest(TopicName.parse("persistent://public/default/__change_events"))
        assert events is not None
        assert events.schema.type is SchemaType.AVRO
        ids = locator.ledger_ids
        assert await schemas.delete_all(TYPED)
        assert await left.store.get("/schemas/public/default/typed") is None
        existing = {ledger_id async for ledger_id in left.ledgers.ledger_ids()}
        assert len(ids) == 3
        assert not existing & set(ids)
        nursery.cancel_scope.cancel()
