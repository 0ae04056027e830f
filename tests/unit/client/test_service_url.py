from __future__ import annotations

import pytest

from quire.client.service_url import Address, parse_service_url


def test_a_service_url_has_hosts_and_ports() -> None:
    assert parse_service_url("pulsar://one") == (Address("one", 6650),)
    assert parse_service_url("pulsar://one:1,two:2/") == (Address("one", 1), Address("two", 2))
    assert parse_service_url("pulsar://[::1]:7") == (Address("::1", 7),)
    assert str(Address("::1", 7)) == "[::1]:7"
    assert parse_service_url("pulsar+ssl://one,two:1") == (Address("one", 6651, True), Address("two", 1, True))


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("pulsar+ssl://h:0", "not host:port"),
        ("http://h:8080", "usually 6650"),
        ("h:6650", "write pulsar://"),
        ("pulsar://", "not host:port"),
        ("pulsar://h:0", "not host:port"),
        ("pulsar://h:66000", "not host:port"),
        ("pulsar://::1:5", "brackets"),
        ("pulsar://a,,b", "not host:port"),
        ("pulsar://a/b", "not host:port"),
    ],
)
def test_another_url_is_refused_with_the_remedy(url: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        parse_service_url(url)
