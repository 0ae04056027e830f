"""Tokens (tokens.py, signed.py, keys.py): what is taken, and every way in which one is refused."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from broker.security.authentication.authentication import Authentication
from broker.security.authentication.credentials import DATA_BYTES_MAX, Presented
from broker.security.authentication.errors import AuthenticationError, ExpiredError
from tests.support.credentials import (
    OPEN_ID,
    SECRET,
    TOKEN,
    authentication,
    ec_key,
    public_der,
    rsa_key,
    token,
    url,
)

NOW_MS = 1_700_000_000_000
NOW = NOW_MS // 1000


def role(checks: Authentication, text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    return checks.identify("token", Presented(data), NOW_MS).role


def only(**options: Any) -> Authentication:
    return authentication(providers=(TOKEN,), **options)


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_token_of_the_secret_is_taken(algorithm: str) -> None:
    assert role(only(), token(algorithm=algorithm)) == "alice"


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_a_token_of_the_rsa_key_is_taken(algorithm: str) -> None:
    checks = only(token_secret_key="", token_public_key=url(public_der(rsa_key())))
    assert role(checks, token(key=rsa_key(), algorithm=algorithm)) == "alice"


@pytest.mark.parametrize(
    ("curve", "algorithm"), [(ec.SECP256R1, "ES256"), (ec.SECP384R1, "ES384"), (ec.SECP521R1, "ES512")]
)
def test_a_token_of_the_ec_key_is_taken(curve: type[ec.EllipticCurve], algorithm: str) -> None:
    key = ec_key(curve)
    checks = only(token_secret_key="", token_public_key=url(public_der(key)), token_public_algorithm=algorithm)
    assert role(checks, token(key=key, algorithm=algorithm)) == "alice"


def test_a_public_key_in_pem_is_read_too() -> None:
    pem = (
        rsa_key().public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    assert (
        role(only(token_secret_key="", token_public_key=url(pem)), token(key=rsa_key(), algorithm="RS256")) == "alice"
    )


def unsigned(claims: dict[str, Any], algorithm: str = "none", signature: str = "") -> str:
    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part({'alg': algorithm})}.{part(claims)}.{signature}"


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", "", "HS1", "EdDSA"])
def test_a_token_without_a_signature_is_refused(name: str) -> None:
    text = unsigned({"sub": "admin"}, name)
    for checks in (only(), only(token_secret_key="", token_public_key=url(public_der(rsa_key())))):
        with pytest.raises(AuthenticationError):
            role(checks, text)


def test_a_public_key_is_not_taken_for_a_secret() -> None:
    """Key confusion: HMAC with the public key, which everybody may have, as its secret."""
    import hashlib
    import hmac

    checks = only(token_secret_key="", token_public_key=url(public_der(rsa_key())))
    for secret in (
        public_der(rsa_key()),
        rsa_key()
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
    ):
        text = unsigned({"sub": "admin"}, "HS256").removesuffix(".")
        mac = hmac.new(secret, text.encode(), hashlib.sha256).digest()
        with pytest.raises(AuthenticationError):
            role(checks, f"{text}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}")


def test_a_token_of_another_key_is_refused() -> None:
    with pytest.raises(AuthenticationError):
        role(only(), token(key=bytes(64)))
    other = rsa.generate_private_key(65537, 2048)
    checks = only(token_secret_key="", token_public_key=url(public_der(rsa_key())))
    with pytest.raises(AuthenticationError):
        role(checks, token(key=other, algorithm="RS256"))
    with pytest.raises(AuthenticationError):
        role(checks, token(key=ec_key(), algorithm="ES256"))


def test_a_changed_token_is_refused() -> None:
    good = token()
    head, claims, signature = good.split(".")
    other = token("admin").split(".")[1]
    for bad in (
        f"{head}.{other}.{signature}",
        f"{head}.{claims}.",
        f"{head}.{claims}",
        f"{head}.{claims}.{signature}.x",
    ):
        with pytest.raises(AuthenticationError):
            role(only(), bad)


def test_an_expired_token_is_refused_and_counted() -> None:
    checks = only()
    assert role(checks, token(exp=NOW)) == "alice"
    with pytest.raises(ExpiredError):
        role(checks, token(exp=NOW - 1))
    assert checks.expired == 1
    assert checks.failures == {("AuthenticationProviderToken", "token", "EXPIRED_TOKEN"): 1}
    assert checks.successes == {("AuthenticationProviderToken", "token"): 1}


def test_a_token_that_is_not_valid_yet_is_refused() -> None:
    assert role(only(), token(nbf=NOW)) == "alice"
    with pytest.raises(AuthenticationError, match="yet"):
        role(only(), token(nbf=NOW + 1))


def test_dates_have_the_allowed_skew() -> None:
    checks = only(token_skew_s=10)
    assert role(checks, token(exp=NOW - 10, nbf=NOW + 10)) == "alice"
    for bad in (token(exp=NOW - 11), token(nbf=NOW + 11)):
        with pytest.raises(AuthenticationError):
            role(checks, bad)


@pytest.mark.parametrize("date", ["tomorrow", True, [1], {}, 1e300, -1e300])
def test_a_date_that_is_none_is_refused(date: Any) -> None:
    key = jwt.PyJWS().encode(json.dumps({"sub": "alice", "exp": date}).encode(), SECRET, "HS256")
    with pytest.raises(AuthenticationError):
        role(only(), key)


def test_a_token_without_a_role_is_refused() -> None:
    values: list[dict[str, Any]]
    values = [{}, {"sub": ""}, {"sub": " "}, {"sub": 5}, {"sub": []}, {"sub": [5]}, {"sub": {"a": 1}}]
    for claims in values:
        data = jwt.PyJWS().encode(json.dumps(claims).encode(), SECRET, "HS256")
        with pytest.raises(AuthenticationError, match="role"):
            role(only(), data)
    for payload in (b"[]", b"5", b"null", b"{", b"\xff", b"[" * 30_000):
        with pytest.raises(AuthenticationError):
            role(only(), jwt.PyJWS().encode(payload, SECRET, "HS256"))


def test_the_role_is_of_the_configured_claim_or_the_first_of_its_list() -> None:
    checks = only(token_role_claim="groups")
    assert role(checks, token(groups="ops")) == "ops"
    assert role(checks, token(groups=["dev", "ops"])) == "dev"
    with pytest.raises(AuthenticationError):
        role(checks, token())


def test_a_token_of_another_audience_is_refused() -> None:
    checks = only(token_audience_claim="aud", token_audience="quire")
    assert role(checks, token(aud="quire")) == "alice"
    assert role(checks, token(aud=["other", "quire"])) == "alice"
    for bad in (token(), *(token(aud=value) for value in ("other", ["quire2"], [], 5, {"quire": 1}))):
        with pytest.raises(AuthenticationError, match="audience"):
            role(checks, bad)


def test_a_huge_token_is_refused_unread() -> None:
    with pytest.raises(AuthenticationError, match="bytes"):
        role(only(), token(x="y" * DATA_BYTES_MAX))


def key_set(*keys: dict[str, Any]) -> str:
    return url(json.dumps({"keys": list(keys)}).encode())


def entry(key: Any, **more: Any) -> dict[str, Any]:
    algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), **more}


def test_keys_of_a_set_are_chosen_by_their_ids() -> None:
    other = rsa.generate_private_key(65537, 2048)
    checks = only(
        token_secret_key="",
        token_key_set=key_set(
            entry(rsa_key(), kid="one", alg="RS256"), entry(other, kid="two"), entry(ec_key(), kid="e", use="enc")
        ),
    )
    assert role(checks, token(key=rsa_key(), algorithm="RS256", headers={"kid": "one"})) == "alice"
    assert role(checks, token(key=other, algorithm="PS256", headers={"kid": "two"})) == "alice"
    assert role(checks, token(key=other, algorithm="RS256")) == "alice"
    for key, algorithm, key_id in ((rsa_key(), "PS256", "one"), (rsa_key(), "RS256", "two"), (ec_key(), "ES256", "e")):
        with pytest.raises(AuthenticationError):
            role(checks, token(key=key, algorithm=algorithm, headers={"kid": key_id}))


def open_id() -> Authentication:
    return authentication(
        providers=(TOKEN, OPEN_ID),
        openid_issuers=("https://one", "https://two"),
        openid_key_sets=(f"https://one={key_set(entry(rsa_key()))}", f"https://two={key_set(entry(ec_key()))}"),
        openid_audiences=("quire",),
    )


def claims(**changed: Any) -> dict[str, Any]:
    wanted = {"iss": "https://one", "aud": "quire", "iat": NOW, "nbf": NOW, "exp": NOW + 60} | changed
    return {name: value for name, value in wanted.items() if value is not None}


def test_a_token_of_an_issuer_is_verified_with_its_own_key() -> None:
    checks = open_id()
    assert role(checks, token(key=rsa_key(), algorithm="RS256", **claims())) == "alice"
    assert role(checks, token(key=ec_key(), algorithm="ES256", **claims(iss="https://two"))) == "alice"
    assert role(checks, token()) == "alice", "and the other provider of tokens is there too"
    for bad in (
        token(key=ec_key(), algorithm="ES256", **claims()),
        token(key=rsa_key(), algorithm="RS256", **claims(iss="https://two")),
        token(key=rsa_key(), algorithm="RS256", **claims(iss="https://three")),
        token(key=rsa_key(), algorithm="RS256", **claims(iss=None)),
        token(key=rsa_key(), algorithm="RS256", **claims(aud="other")),
        token(key=rsa_key(), algorithm="RS256", **claims(exp=NOW - 1)),
        token(key=rsa_key(), algorithm="RS256", **claims(iat=NOW + 5)),
        *(token(key=rsa_key(), algorithm="RS256", **claims(**{name: None})) for name in ("iat", "nbf", "exp", "aud")),
        token(None, key=rsa_key(), algorithm="RS256", **claims()),
        unsigned(claims(sub="alice")),
    ):
        with pytest.raises(AuthenticationError):
            role(checks, bad)


def test_garbage_is_one_error() -> None:
    rng = random.Random(5)
    checks = open_id()
    good = token().encode()
    for _ in range(2000):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            data = bytearray(rng.randbytes(rng.randrange(200)))
        if bytes(data).strip() == good:
            continue
        try:
            found = role(checks, bytes(data))
        except AuthenticationError:
            continue
        # The last character of a signature has bits that do not count.
        assert found == "alice"
        assert data[:-1] == good[:-1]
