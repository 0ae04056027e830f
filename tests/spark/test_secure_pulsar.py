"""Streams from Apache Pulsar 4.2.4 to it, exactly once, with credentials: a token, a token over TLS, a certificate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pyspark.errors import PySparkException

from tests.interop.secured import Secured
from tests.spark.support import QUERY_S, numbered, publish
from tests.support.credentials import token

ROWS = 50


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    keys = {"brokerDeduplicationEnabled": "true", "brokerDeleteInactiveTopicsEnabled": "false"}
    made = Secured(tmp_path_factory.mktemp("secured"), **keys)
    with made.pulsar():
        yield made


@pytest.fixture(params=["token", "token over TLS", "certificate"])
def options(request: pytest.FixtureRequest, secured: Secured, tmp_path: Path) -> dict[str, str]:
    """Return the options of a superuser: addresses, and paths of files."""
    if request.param == "certificate":
        pair = secured.authority.issue("client.localhost", common_name="operator", file="spark", rsa=True)
        credentials = {"tlsCertificateFilePath": str(pair.certificate), "tlsKeyFilePath": str(pair.key)}
    else:
        (tmp_path / "token").write_text(token("admin"))
        credentials = {"authTokenFile": str(tmp_path / "token")}
    if request.param == "token":
        port, web = secured.ports[:2]
        return {"service.url": f"pulsar://localhost:{port}", "admin.url": f"http://localhost:{web}", **credentials}
    trust = {"tlsTrustCertsFilePath": str(secured.authority.trust)}
    return {"service.url": secured.url, "admin.url": secured.web, **trust, **credentials}


@pytest.fixture
def owner(secured: Secured) -> Iterator[pulsar.Client]:
    client = pulsar.Client(
        secured.url,
        authentication=pulsar.AuthenticationToken(token("admin")),
        tls_trust_certs_file_path=str(secured.authority.trust),
        tls_validate_hostname=True,
        operation_timeout_seconds=60,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"),
    )
    with closing(client):
        yield client


def test_a_stream_copies_a_topic_once_and_is_refused_without_credentials(
    spark: Any, options: dict[str, str], owner: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.adaptive.streaming.stateless.enabled", "false")
    target, checkpoint = f"{topic}-copy", tmp_path / "checkpoint"
    publish(owner, topic, numbered(0, ROWS), batching_enabled=True)
    read = {**options, "topic": topic, "subscription": "copying", "startingOffsets": "earliest"}
    try:
        for _ in range(2):
            frame = spark.readStream.format("quire").options(**read).load().select("value", "__key")
            sink = frame.writeStream.format("quire").options(**options, topic=target, exactlyOnce="true")
            query = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
            assert query.awaitTermination(QUERY_S), "the query did not end"
            (checkpoint / "commits" / "0").unlink(missing_ok=True)
            (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    finally:
        spark.conf.unset("spark.sql.adaptive.streaming.stateless.enabled")
    copied = spark.read.format("quire").options(**options, topic=target).load()
    assert sorted(row["value"] for row in copied.select("value").collect()) == numbered(0, ROWS)
    without = {name: text for name, text in options.items() if not name.startswith(("auth", "tlsCert", "tlsKey"))}
    with pytest.raises(PySparkException, match=r"(?i)authenticat|unauthorized"):
        spark.read.format("quire").options(**without, topic=target, operationTimeoutMs="5000").load().collect()
