"""Roles of connections and requests (authentication.py, certificates.py, refreshing.py)."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography import x509

from broker.security.authentication.authentication import Authentication, Handshake, Login
from broker.security.authentication.credentials import Presented
from broker.security.authentication.errors import AuthenticationError, RolesError
from broker.security.authentication.refreshing import LoginSession, RefreshStep
from broker.security.principal import Principal
from tests.support.credentials import BASIC, TLS, TOKEN, authentication, certificate, token

NOW_MS = 1_700_000_000_000
NOW = NOW_MS // 1000
PROXY = {"proxy_roles": ("proxy", "proxy2")}


def login(checks: Authentication, method: str = "token", data: str = "", **more: Any) -> Login:
    original = more.pop("original", None)
    given = Handshake(
        method,
        Presented(data.encode(), more.pop("certificate", None)),
        original=None if original is None else Presented(original.encode()),
        **more,
    )
    return checks.login(given, NOW_MS)


def test_the_method_chooses_the_provider() -> None:
    checks = authentication()
    assert login(checks, "token", token()).principal == Principal("alice")
    assert login(checks, "basic", "admin:123456").principal == Principal("admin")
    for method, data in (("basic", token()), ("token", "admin:123456"), ("tls", ""), ("none", ""), ("", "")):
        with pytest.raises(AuthenticationError):
            login(checks, method, data)


def test_a_client_of_no_provider_is_anonymous_only_if_that_is_a_role() -> None:
    checks = authentication(anonymous_role="guest")
    for method in ("none", "unknown", "tls", ""):
        found = login(checks, method, "x")
        assert found == Login(Principal("guest"), "")
    with pytest.raises(AuthenticationError):
        login(checks, "token", "wrong")


def test_a_proxy_must_name_its_client_and_nothing_else_may() -> None:
    checks = authentication(**PROXY)
    found = login(checks, "token", token("proxy"), original_role="alice")
    assert found.principal == Principal("proxy", "alice")
    assert not found.can_refresh
    for role, original in (("proxy", ""), ("proxy", " "), ("proxy", "proxy2"), ("proxy", "proxy"), ("alice", "admin")):
        with pytest.raises(RolesError):
            login(checks, "token", token(role), original_role=original)
    with pytest.raises(RolesError):
        login(authentication(anonymous_role="guest", **PROXY), "none", original_role="admin")


def test_a_client_of_a_proxy_needs_credentials_of_its_own_if_they_are_checked() -> None:
    checks = authentication(verify_original=True, **PROXY)
    given: dict[str, Any] = {"original_role": "whatever", "original_method": "token"}
    found = login(checks, "token", token("proxy"), original=token("alice", exp=NOW + 5), **given)
    assert found.principal == Principal("proxy", "alice"), "the role of the credentials counts"
    assert (found.of_original, found.can_refresh, found.expires_ms) == (True, True, NOW_MS + 5000)
    for original in (None, "", "wrong", token("alice", exp=NOW - 5), token("proxy2")):
        with pytest.raises(AuthenticationError):
            login(checks, "token", token("proxy"), original=original, **given)
    with pytest.raises(AuthenticationError):
        login(checks, "token", token("alice"), original=token("admin"), **given)
    with pytest.raises(AuthenticationError):
        login(checks, "token", token("proxy"), original_role="alice", original_method="none")


def test_a_refresh_may_not_change_role_or_method() -> None:
    checks = authentication()
    first = login(checks, "token", token(exp=NOW + 5))
    later = checks.refresh(first, "token", Presented(token(exp=NOW + 50).encode()), NOW_MS)
    assert (later.principal, later.expires_ms) == (Principal("alice"), NOW_MS + 50_000)
    for method, data in (
        ("token", token("admin")),
        ("token", token(exp=NOW - 1)),
        ("token", ""),
        ("basic", "admin:123456"),
        ("none", ""),
    ):
        with pytest.raises(AuthenticationError):
            checks.refresh(first, method, Presented(data.encode()), NOW_MS)


def test_a_refresh_of_a_proxy_is_of_its_client() -> None:
    checks = authentication(verify_original=True, **PROXY)
    given: dict[str, Any] = {"original_role": "alice", "original_method": "token"}
    first = login(checks, "token", token("proxy"), original=token("alice", exp=NOW + 5), **given)
    later = checks.refresh(first, "token", Presented(token("alice", exp=NOW + 9).encode()), NOW_MS)
    assert (later.principal, later.of_original) == (Principal("proxy", "alice"), True)
    with pytest.raises(AuthenticationError):
        checks.refresh(first, "token", Presented(token("proxy").encode()), NOW_MS)


@pytest.mark.parametrize(
    ("can_refresh", "client_can", "steps"),
    [
        (True, True, [RefreshStep.CHALLENGE, RefreshStep.LATE]),
        (True, False, [RefreshStep.UNABLE]),
        (False, True, [RefreshStep.PROXY]),
    ],
)
def test_expired_credentials_are_asked_for_once(can_refresh: bool, client_can: bool, steps: list[RefreshStep]) -> None:
    session = LoginSession(Login(Principal("a"), "token", 1000, can_refresh=can_refresh), client_can)
    assert session.next_step(1000) is RefreshStep.KEEP
    assert [session.next_step(1001) for _ in steps] == steps


def test_the_role_of_a_certificate_is_its_common_name_else_an_alternative_name() -> None:
    checks = authentication(providers=(TLS,))
    names = (x509.UniformResourceIdentifier("spiffe://a"), x509.DNSName("b.example"))
    for made, role in (
        (certificate("client", *names), "client"),
        (certificate(None, *names), "b.example"),
        (certificate(None, names[0]), "spiffe://a"),
    ):
        assert login(checks, "tls", "ignored", certificate=made).principal == Principal(role)
    for bad in (None, b"", b"no certificate", certificate(None), certificate(" "), certificate("x")[:-5]):
        with pytest.raises(AuthenticationError):
            login(checks, "tls", certificate=bad)


def headers(**given: str) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in given.items()}


def test_a_request_proves_its_role_by_any_provider() -> None:
    checks = authentication(providers=(TOKEN, BASIC, TLS))
    bearer = f"Bearer {token()}"
    assert checks.of_request(headers(authorization=bearer), None, NOW_MS) == Principal("alice")
    assert checks.of_request({}, certificate("client"), NOW_MS) == Principal("client")
    named = headers(authorization=bearer, x_pulsar_auth_method_name="token")
    assert checks.of_request(named, certificate("client"), NOW_MS) == Principal("alice")
    for bad in (
        {},
        headers(authorization="Bearer x"),
        headers(authorization=token()),
        headers(authorization=bearer, x_pulsar_auth_method_name="basic"),
        headers(authorization=bearer, x_pulsar_auth_method_name="none"),
        headers(authorization=f"Bearer {token(exp=NOW - 1)}"),
    ):
        with pytest.raises(AuthenticationError):
            checks.of_request(bad, None, NOW_MS)


def test_a_request_without_credentials_is_anonymous_and_one_with_wrong_ones_is_not() -> None:
    checks = authentication(anonymous_role="guest")
    assert checks.of_request({}, None, NOW_MS) == Principal("guest")
    for bad in (headers(authorization="Bearer x"), headers(x_pulsar_auth_method_name="token")):
        with pytest.raises(AuthenticationError):
            checks.of_request(bad, None, NOW_MS)


def test_a_request_of_a_proxy_names_its_client() -> None:
    checks = authentication(**PROXY)
    proxy = f"Bearer {token('proxy')}"
    found = checks.of_request(headers(authorization=proxy, x_original_principal="alice"), None, NOW_MS)
    assert found == Principal("proxy", "alice")
    own = headers(authorization=f"Bearer {token()}", x_original_principal="alice")
    assert checks.of_request(own, None, NOW_MS) == Principal("alice")
    for bad in (
        headers(authorization=proxy),
        headers(authorization=proxy, x_original_principal="proxy2"),
        headers(authorization=f"Bearer {token()}", x_original_principal="admin"),
    ):
        with pytest.raises(RolesError):
            checks.of_request(bad, None, NOW_MS)
