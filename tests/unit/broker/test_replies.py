"""Failures are sent in the answer that the client waits for."""

from __future__ import annotations

from broker import replies
from broker.config import BrokerOptions
from broker.connections import refusals
from broker.ownership.lookup import Connect
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import C


def parse(frame: bytes) -> pb.BaseCommand:
    return pb.BaseCommand.FromString(frame[8:])


def test_each_failure_travels_in_the_answer_of_its_request() -> None:
    lookup = C(type=C.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic="t", request_id=3))
    found = parse(refusals.failed(lookup, pb.TopicNotFound, "no"))
    assert found.type == C.LOOKUP_RESPONSE
    # The C++ client tests whether the field exists, not its value.
    assert found.lookupTopicResponse.HasField("response")
    assert (found.lookupTopicResponse.request_id, found.lookupTopicResponse.error) == (3, pb.TopicNotFound)
    schema = C(type=C.GET_SCHEMA, getSchema=pb.CommandGetSchema(topic="t", request_id=4))
    refused = parse(refusals.failed(schema, pb.TopicNotFound, "no"))
    assert refused.type == C.GET_SCHEMA_RESPONSE
    assert (refused.getSchemaResponse.request_id, refused.getSchemaResponse.error_code) == (4, pb.TopicNotFound)
    seek = C(type=C.SEEK, seek=pb.CommandSeek(consumer_id=1, request_id=5))
    assert parse(refusals.failed(seek, pb.MetadataError, "no")).error.request_id == 5


def test_success_of_a_lookup_and_of_metadata_says_so_explicitly() -> None:
    assert parse(replies.partitions(1, 0)).partitionMetadataResponse.HasField("response")
    assert parse(replies.lookup(1, Connect("pulsar://h:1", "", mine=True))).lookupTopicResponse.HasField("response")


def test_no_id_travels_as_all_ones() -> None:
    answer = parse(replies.last_message_id(1, (-1, -1), -1, -1, (7, -1))).getLastMessageIdResponse
    assert answer.last_message_id.ledgerId == answer.last_message_id.entryId == replies.U64_MAX
    assert (answer.consumer_mark_delete_position.ledgerId, answer.last_message_id.batch_index) == (7, -1)
    assert parse(replies.close_consumer(4)).close_consumer.request_id == replies.U64_MAX


def test_clients_are_told_of_the_features_that_are_served_and_of_nothing_else() -> None:
    """Without the first the Java client assumes that the old retry topic, one for all topics of the namespace,
    exists."""
    for watchers in (True, False):
        told = parse(replies.connected("Quire", 20, BrokerOptions(pattern_evaluation=watchers))).connected.feature_flags
        features = {field.name: value for field, value in told.ListFields()}
        assert features == {
            "supports_get_partitioned_metadata_without_auto_creation": True,
            "supports_topic_watchers": watchers,
        }


def test_urls_with_tls_are_beside_those_without_in_lookups_and_in_closes() -> None:
    both = Connect("pulsar://h:1", "", True, "pulsar+ssl://h:2", "")
    found = parse(replies.lookup(1, both)).lookupTopicResponse
    assert (found.brokerServiceUrl, found.brokerServiceUrlTls) == ("pulsar://h:1", "pulsar+ssl://h:2")
    only = Connect("pulsar+ssl://h:2", "", True, "pulsar+ssl://h:2", "")
    for answer in (replies.lookup(1, only), replies.redirect(1, only, authoritative=True)):
        found = parse(answer).lookupTopicResponse
        assert (found.brokerServiceUrl, found.brokerServiceUrlTls) == ("", "pulsar+ssl://h:2")
    closed = parse(replies.close_producer(1, "pulsar://h:1,pulsar+ssl://h:2")).close_producer
    assert closed.assignedBrokerServiceUrl == "pulsar://h:1"
    assert closed.assignedBrokerServiceUrlTls == "pulsar+ssl://h:2"
    ended = parse(replies.close_consumer(1, "pulsar+ssl://h:2")).close_consumer
    assert not ended.HasField("assignedBrokerServiceUrl")
    assert ended.assignedBrokerServiceUrlTls == "pulsar+ssl://h:2"
