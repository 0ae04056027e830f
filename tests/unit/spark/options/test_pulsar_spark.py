"""docs/spark-from-pulsar-spark.md: its rows say what the options do, and no option of pulsar-spark is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from quire.spark.errors import OptionError
from quire.spark.options.parse import Options, canonical_name
from quire.spark.options.table import Use

PAGE = Path(__file__).resolve().parents[4] / "docs" / "spark-from-pulsar-spark.md"
CONNECTOR = {
    "service.url", "admin.url", "topic", "topics", "topicsPattern", "startingOffsets", "endingOffsets", "startingTime",
    "endingTime", "subscriptionPrefix", "predefinedSubscription", "maxBytesPerTrigger", "pollTimeoutMs",
    "failOnDataLoss", "allowDifferentTopicSchemas", "waitingForNonExistedTopic", "pulsar.client.*", "pulsar.admin.*",
    "pulsar.reader.*", "pulsar.producer.*",
}  # fmt: skip
"""Options of the connector, by its readme and its source (PulsarOptions.scala), version 3.4.1."""
USES: tuple[Use, ...] = ("batch", "stream", "write")
VALUES = {
    "service.url": "pulsar://host:6650", "admin.url": "http://host:8080", "topics": "a,b",
    "startingOffsets": "earliest", "endingOffsets": "latest", "startingTime": "1700000000000",
    "endingTime": "1700000000000",
    "maxBytesPerTrigger": "100000", "pollTimeoutMs": "6000", "failOnDataLoss": "false",
    "pulsar.client.operationTimeoutMs": "6000", "pulsar.client.tlsAllowInsecureConnection": "false",
    "pulsar.client.tlsHostnameVerificationEnable": "true", "pulsar.producer.batchingEnabled": "true",
    "pulsar.producer.chunkingEnabled": "true", "pulsar.producer.compressionType": "LZ4",
    "pulsar.producer.hashingScheme": "Murmur3_32Hash",
}  # fmt: skip
"""Values that a user of the connector gives, of options that do not take every text."""
NEEDED = {
    "pulsar.client.tlsCertificateFilePath": {"tlsKeyFilePath": "/key"},
    "pulsar.client.tlsKeyFilePath": {"tlsCertificateFilePath": "/certificate"},
}


def cells() -> list[tuple[str, str]]:
    """Return the cells of the page's table."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ", 1) for line in lines if line.startswith("| ")]
    return [(theirs, ours) for theirs, ours in rows]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


ROWS = [(name, ours) for theirs, ours in cells() if theirs.startswith("`") for name in quoted(theirs)]
ROWS = [(name, ours) for name, ours in ROWS if "(" not in name and not name.startswith("spark.")]
"""Options of the connector, and what the page says of them. An option with two forms of values has two rows."""
SAME = sorted({name for name, ours in ROWS if re.match("the same($|;|,)", ours)})
OTHER = [(name, ours) for name, ours in ROWS if name not in SAME]


def outcome(name: str, use: Use, value: str) -> OptionError | None:
    """Return the error of a query with an option of the connector; None: it is accepted."""
    given = {"topic": "x", "subscription": "s"} if use == "stream" else {"topic": "x"}
    given |= NEEDED.get(name, {})
    meant = canonical_name(name)
    if meant in ("topics", "topicsPattern"):
        del given["topic"]
    if meant in ("subscription", "subscriptionPrefix"):
        given.pop("subscription", None)
    try:
        Options.parse({**given, name: value}, use=use)
    except OptionError as error:
        return error
    return None


def test_the_page_has_every_option_of_the_connector() -> None:
    assert {name for theirs, _ in cells() for name in quoted(theirs)} >= CONNECTOR


@pytest.mark.parametrize("name", SAME)
def test_an_option_that_is_the_same_is_taken_with_the_connectors_value(name: str) -> None:
    assert None in [outcome(name, use, VALUES.get(name, "some")) for use in USES]


@pytest.mark.parametrize(("name", "ours"), OTHER, ids=[name for name, _ in OTHER])
def test_an_option_that_is_another_one_here_is_refused_and_the_error_names_that_one(name: str, ours: str) -> None:
    for use in USES:
        error = outcome(name, use, "some")
        assert error is not None
        assert any(each.partition("=")[0] in error.remedy for each in quoted(ours)), error


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
def test_message_ids_of_the_connector_are_refused_with_the_form_of_positions(name: str) -> None:
    error = outcome(name, "batch", '{"topic-1": [8, 11, 16, 101, 24, 1, 32, 1]}')
    assert error is not None
    assert "as pulsar-spark writes serialized message ids" in error.remedy


@pytest.mark.parametrize("name", ["startingTime", "endingTime"])
def test_times_of_topics_are_refused_with_the_option_for_them(name: str) -> None:
    error = outcome(name, "batch", '{"topic-1": 1700000000000}')
    assert error is not None
    assert f"{name.removesuffix('Time')}OffsetsByTimestamp" in error.remedy
