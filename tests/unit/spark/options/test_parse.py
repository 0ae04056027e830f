from __future__ import annotations

import pickle
import re

import pytest

from quire.spark.errors import OptionError
from quire.spark.limits import Limits
from quire.spark.offsets import EARLIEST, LATEST, Boundary, Place
from quire.spark.options.parse import COLUMN_NAMES, Options
from quire.spark.options.table import FOREIGN, OPTIONS, Foreign, Option, Use
from quire.spark.topics import TopicsPattern

X = "persistent://public/default/x"


def batch(**options: str) -> Options:
    return parse("batch", {"topic": "x", **options})


def stream(**options: str) -> Options:
    return parse("stream", {"topic": "x", "subscription": "s", **options})


def write(**options: str) -> Options:
    return parse("write", options)


def parse(use: Use, options: dict[str, str]) -> Options:
    return Options.parse({key.replace("__", "."): value for key, value in options.items()}, use=use)


def refused(use: Use, options: dict[str, str]) -> OptionError:
    with pytest.raises(OptionError) as info:
        Options.parse(options, use=use)
    return info.value


def test_a_batch_read_needs_no_more_than_a_topic() -> None:
    assert batch() == Options(use="batch", topics=(X,))


def test_the_defaults_are_those_of_the_documentation() -> None:
    options = batch()
    assert (options.starting, options.ending) == (EARLIEST, LATEST)
    assert (options.service_url, options.admin_url) == ("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")
    assert (options.fail_on_data_loss, options.is_held, options.columns) == (True, False, COLUMN_NAMES)
    assert stream().starting == LATEST
    assert write() == Options(use="write")


@pytest.mark.parametrize(
    ("option", "fields"),
    [
        ("pollTimeoutMs", "poll_timeout_ms"),
        ("operationTimeoutMs", "operation_timeout_ms"),
        ("chunkedMessageHold", "chunked_message_hold"),
        ("topicsRefreshMs", "topics_refresh_ms"),
    ],
)
def test_the_table_has_the_defaults_that_are_in_force(option: str, fields: str) -> None:
    (documented,) = (each.default for each in OPTIONS if each.name == option)
    assert int(documented) == getattr(batch(), fields)


def test_case_makes_no_difference_in_names() -> None:
    assert Options.parse({"TOPIC": "x", "failondataloss": "FALSE"}, use="batch").fail_on_data_loss is False


@pytest.mark.parametrize(
    ("alias", "value", "field", "wanted"),
    [
        ("serviceUrl", "pulsar://h:1", "service_url", "pulsar://h:1"),
        ("adminUrl", "http://h:2", "admin_url", "http://h:2"),
        ("startingTime", "7", "starting", Boundary(kind="timestamp", timestamp_ms=7)),
        ("endingTime", "7", "ending", Boundary(kind="timestamp", timestamp_ms=7)),
        ("maxOffsetsPerTrigger", "7", "messages_max", 7),
        ("predefinedSubscription", "s", "subscription", "s"),
        ("kafkaConsumer.pollTimeoutMs", "7", "poll_timeout_ms", 7),
    ],
)
def test_names_that_kafka_and_pulsar_users_know_are_taken(alias: str, value: str, field: str, wanted: object) -> None:
    assert getattr(Options.parse({"topic": "x", alias: value}, use="batch"), field) == wanted


def remedy_of(use: Use, name: str) -> str:
    try:
        Options.parse({name: "\x00"}, use=use)
    except OptionError as error:
        return error.remedy
    return ""


@pytest.mark.parametrize("option", OPTIONS, ids=lambda each: each.name)
def test_every_option_and_alias_of_the_table_is_known_where_it_says(option: Option) -> None:
    uses: tuple[Use, ...] = ("batch", "stream", "write")
    for name in (option.name, *option.aliases):
        for use in uses:
            remedy = remedy_of(use, name)
            assert "no such option" not in remedy
            assert ("leave it out" in remedy) == (use not in option.uses)


def test_an_option_given_under_two_names_is_refused() -> None:
    assert "given twice" in refused("batch", {"topics": "x", "subscribe": "y"}).remedy


def test_a_misspelt_option_is_refused_with_the_nearest_name() -> None:
    error = refused("batch", {"topic": "x", "startingOfsets": "latest"})
    assert str(error) == "option 'startingOfsets' is 'latest': there is no such option; did you mean 'startingOffsets'?"


@pytest.mark.parametrize("foreign", FOREIGN, ids=lambda each: each.name)
def test_an_option_of_kafka_or_pulsar_that_means_nothing_here_is_refused_with_a_remedy(foreign: Foreign) -> None:
    name = foreign.name.replace("*", "some.key")
    assert refused("stream", {"topic": "x", name: "v"}).remedy == foreign.remedy


def test_kafkas_servers_are_refused_with_ours() -> None:
    assert "service.url=pulsar://" in refused("stream", {"kafka.bootstrap.servers": "h:9092"}).remedy


def test_options_of_spark_itself_are_ignored() -> None:
    assert stream(checkpointLocation="/c", queryName="q") == stream()


def test_options_of_the_other_direction_are_refused() -> None:
    assert "for writing" in refused("batch", {"topic": "x", "compression": "lz4"}).remedy
    assert "for reading" in refused("write", {"startingOffsets": "latest"}).remedy


def test_options_pickle() -> None:
    options = Options.parse({"topicsPattern": "t/n/.*", "startingOffsets": f'{{"{X}": "1:2"}}'}, use="batch")
    assert pickle.loads(pickle.dumps(options)) == options


# Addresses of the brokers


def test_hosts_get_the_port_and_the_admin_url_is_on_the_first() -> None:
    options = batch(service__url="pulsar://one,two:7000/")
    assert options.service_url == "pulsar://one:6650,two:7000"
    assert options.admin_url == "http://one:8080"


def test_an_address_of_version_6_is_a_host() -> None:
    assert batch(service__url="pulsar://[::1]:7000").admin_url == "http://[::1]:8080"


@pytest.mark.parametrize(
    "url", ["h:6650", "http://h:6650", "pulsar://", "pulsar://h:x", "pulsar://h:99999", "pulsar://h:0", "pulsar://a,,b"]
)
def test_a_service_url_of_another_form_is_refused_with_the_form(url: str) -> None:
    assert "pulsar://host:6650" in refused("batch", {"topic": "x", "service.url": url}).remedy


def test_tls_is_refused_plainly() -> None:
    assert "TLS is not served yet" in refused("batch", {"topic": "x", "service.url": "pulsar+ssl://h:6651"}).remedy
    assert "TLS is not served yet" in refused("batch", {"topic": "x", "admin.url": "https://h"}).remedy


@pytest.mark.parametrize(
    "url", ["h:8080", "http://", "http://h:8080/admin", "ftp://h", "http://u:p@h", "http://h:99999"]
)
def test_an_admin_url_of_another_form_is_refused(url: str) -> None:
    assert "http://host:8080" in refused("batch", {"topic": "x", "admin.url": url}).remedy


# Topics


def test_topics_are_full_names_each_once() -> None:
    assert Options.parse({"subscribe": "x, t/n/y ,x"}, use="batch").topics == (X, "persistent://t/n/y")


def test_a_pattern_is_of_one_namespace() -> None:
    options = Options.parse({"subscribePattern": "t/n/a.*"}, use="batch")
    assert (options.topics, options.topics_pattern) == ((), TopicsPattern("t/n", "a.*"))


@pytest.mark.parametrize(
    "options",
    [{}, {"topic": "x", "topics": "y"}, {"topics": "x", "topicsPattern": "y"}, {"topic": "x", "subscribe": "x"}],
)
def test_exactly_one_way_to_name_topics_is_needed(options: dict[str, str]) -> None:
    assert "exactly one of topic, topics, topicsPattern" in refused("batch", options).remedy


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": ""}, "empty"),
        ({"topic": "non-persistent://a/b/c"}, "not persistent"),
        ({"topics": "a,,b"}, "none of them empty"),
        ({"topicsPattern": "t/n/("}, "not a regular expression"),
    ],
)
def test_a_topic_that_cannot_be_is_refused(options: dict[str, str], said: str) -> None:
    assert said in refused("batch", options).remedy


# Start and end


def test_json_names_the_next_entry_of_each_partition() -> None:
    text = f'{{"{X}-partition-0": "12:40:3", "x-partition-1": -1, "x-partition-2": -2, "x-partition-3": "-2"}}'
    assert stream(startingOffsets=text).starting.places == (
        (f"{X}-partition-0", Place(12, 40, 3)),
        (f"{X}-partition-1", -1),
        (f"{X}-partition-2", -2),
        (f"{X}-partition-3", -2),
    )


def test_kafkas_nested_form_means_the_same() -> None:
    nested = stream(startingOffsets='{"x": {"1": "12:0", "0": -2}}')
    assert nested == stream(startingOffsets=f'{{"{X}-partition-0": -2, "{X}-partition-1": "12:0"}}')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sometime", "give earliest, latest, or JSON"),
        ("{}", "give earliest, latest, or JSON"),
        ("[]", "give earliest, latest, or JSON"),
        ('{"x": 23}', "no numbered offsets"),
        ('{"x": true}', "ledger:entry[:batch]"),
        ('{"x": {"0": 23}}', "no numbered offsets"),
        ('{"x": [8, 1, 16, 2]}', "as pulsar-spark writes"),
        ('{"x": "12"}', "is not ledger:entry[:batch], at persistent://public/default/x"),
        ('{"x": "-3"}', "is not ledger:entry"),
        ('{"x": {"a": -2}}', "not the number of a partition"),
        ('{"x": {"0": {"0": 1}}}', "ledger:entry[:batch]"),
        ('{"x": -2, "public/default/x": -1}', "named twice"),
        ('{"x": -2, "x": -1}', "occurs twice"),
        ('{"": -2}', "empty"),
    ],
)
def test_offsets_of_another_form_are_refused_with_the_form(text: str, said: str) -> None:
    error = refused("stream", {"topic": "x", "subscription": "s", "startingOffsets": text})
    assert error.option == "startingOffsets"
    assert said in error.remedy


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": "latest"}, "has no rows"),
        ({"startingOffsets": '{"x": -1}'}, "has no rows"),
        ({"endingOffsets": "earliest"}, "has no rows"),
        ({"endingOffsets": '{"x": -2}'}, "has no rows"),
        ({"endingOffsets": '{"x": "1:2:3"}'}, "ends between entries"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "startingTimestamp is given too"),
        ({"endingOffsets": "latest", "endingTimestamp": "1"}, "endingTimestamp is given too"),
        ({"startingTimestamp": "now"}, "whole number"),
        ({"startingTimestamp": '{"x": {"0": 1}}'}, "one time is for all"),
    ],
)
def test_a_batch_read_that_makes_no_sense_is_refused(options: dict[str, str], said: str) -> None:
    assert said in refused("batch", {"topic": "x", **options}).remedy


def test_a_batch_read_may_leave_out_one_partition_by_beginning_at_its_latest_entry() -> None:
    text = f'{{"{X}-partition-0": -1, "{X}-partition-1": -2}}'
    options = Options.parse({"topic": "x", "startingOffsets": text}, use="batch")
    assert options.starting.places == ((f"{X}-partition-0", -1), (f"{X}-partition-1", -2))


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "endingTime"])
def test_a_stream_has_no_end(option: str) -> None:
    error = refused("stream", {"topic": "x", "subscription": "s", option: "1"})
    assert "availableNow" in error.remedy


# Numbers


def test_limits_are_numbers_of_messages_and_of_bytes() -> None:
    options = stream(maxMessagesPerTrigger="7", maxBytesPerTrigger="2m", minPartitions="3")
    assert options.limits == Limits(messages_max=7, bytes_max=2 << 20)
    assert options.min_partitions == 3
    assert stream().limits == Limits()


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("10b", 10), ("3k", 3 << 10), ("3KB", 3 << 10), ("5 MiB", 5 << 20), ("2G", 2 << 30), ("1t", 1 << 40)],
)
def test_sizes_have_units_of_1024(text: str, size: int) -> None:
    assert stream(maxBytesPerTrigger=text).bytes_max == size


@pytest.mark.parametrize("text", ["", "0", "0m", "-1", "1.5m", "m", "1x", "1mm", "١", "99999999999999t"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    assert "k, m or g" in refused("stream", {"topic": "x", "maxBytesPerTrigger": text}).remedy


@pytest.mark.parametrize(
    "option", ["maxMessagesPerTrigger", "minPartitions", "pollTimeoutMs", "operationTimeoutMs", "chunkedMessageHold"]
)
@pytest.mark.parametrize("text", ["0", "-1", "", "1.0", "many", "9" * 19 + "9"])
def test_a_number_that_is_none_is_refused(option: str, text: str) -> None:
    assert "whole number, at least 1" in refused("stream", {"topic": "x", "subscription": "s", option: text}).remedy


@pytest.mark.parametrize("text", ["yes", "1", ""])
def test_a_switch_is_true_or_false(text: str) -> None:
    assert refused("batch", {"topic": "x", "failOnDataLoss": text}).remedy == "give true or false"


# The hold


def test_a_stream_says_what_holds_its_data() -> None:
    error = refused("stream", {"topic": "x"})
    assert error.option == "subscription"
    assert "hold=none" in error.remedy
    assert stream().subscription == "s"
    assert Options.parse({"topic": "x", "hold": "none"}, use="stream").is_held is False


def test_a_batch_read_is_held_only_if_it_names_a_subscription() -> None:
    assert batch().is_held is False
    assert batch(subscription="s").is_held is True
    assert refused("batch", {"topic": "x", "hold": "subscription"}).option == "subscription"


def test_a_subscription_beside_none_is_refused() -> None:
    assert "hold=none" in refused("stream", {"topic": "x", "subscription": "s", "hold": "none"}).remedy


@pytest.mark.parametrize("name", ["", " ", "."])
def test_a_name_that_no_subscription_can_have_is_refused(name: str) -> None:
    assert refused("stream", {"topic": "x", "subscription": name}).option == "subscription"


# Columns


def test_columns_are_those_asked_for_in_that_order() -> None:
    assert batch(columns="value, __key").columns == ("value", "__key")


@pytest.mark.parametrize(
    ("text", "said"),
    [("key", "no column 'key'; there are __key, value"), ("value,value", "once"), ("", "none of them")],
)
def test_columns_that_are_not_there_are_refused(text: str, said: str) -> None:
    assert said in refused("batch", {"topic": "x", "columns": text}).remedy


# The sink


def test_a_sink_takes_its_own_options() -> None:
    options = write(
        topic="x", batching="false", compression="ZSTD", hashingScheme="murmur3_32hash", operationTimeoutMs="5"
    )
    assert options == Options(
        use="write",
        topic=X,
        batching=False,
        compression="zstd",
        hashing_scheme="Murmur3_32Hash",
        operation_timeout_ms=5,
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": ""}, "empty"),
        ({"compression": "gzip"}, "none, lz4, zlib, zstd, snappy"),
        ({"hashingScheme": "md5"}, "JavaStringHash, Murmur3_32Hash"),
        ({"batching": "1"}, "true or false"),
    ],
)
def test_a_sinks_option_that_cannot_be_is_refused(options: dict[str, str], said: str) -> None:
    assert re.search(re.escape(said), refused("write", options).remedy)
