"""Credentials of a query, by its options."""

from __future__ import annotations

import pytest

from quire.spark.options.parse import Options
from quire.spark.runtime import credentials_of

TLS = {"service.url": "pulsar+ssl://one", "tlsCertificateFilePath": "/c", "tlsKeyFilePath": "/k"}


@pytest.mark.parametrize(
    ("given", "method"),
    [
        ({}, None),
        ({"authToken": "abc"}, "token"),
        ({"authTokenFile": "/t"}, "token"),
        ({"authPassword": "a:b"}, "basic"),
        (TLS, "tls"),
        ({**TLS, "authTokenFile": "/t"}, "token"),
        ({"service.url": "pulsar+ssl://one", "tlsTrustCertsFilePath": "/ca"}, None),
    ],
)
def test_a_certificate_is_the_credential_of_a_query_that_has_no_other(
    given: dict[str, str], method: str | None
) -> None:
    found = credentials_of(Options.parse({"topic": "x", **given}, use="batch"))
    assert (found and found.method) == method
