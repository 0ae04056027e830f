"""Authentication as configurations ask for it (loading.py, keys.py, config.py)."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from broker.security.authentication.config import AuthenticationOptions
from broker.security.authentication.credentials import Presented
from broker.security.authentication.keys import read_value
from broker.security.authentication.loading import load
from quire.service.errors import ConfigError
from tests.support.credentials import (
    BASIC,
    DATA_URL,
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


def test_a_key_is_read_from_a_file_a_url_a_path_or_base64(tmp_path: Path) -> None:
    file = tmp_path / "a key"
    file.write_bytes(SECRET)
    encoded = base64.b64encode(SECRET).decode()
    quoted = str(file).replace(" ", "%20")
    for text in (
        f"file://{quoted}",
        f"file:{quoted}",
        str(file),
        DATA_URL,
        f" {encoded}\n",
        "data:application/x;base64," + encoded,
    ):
        assert read_value(text) == SECRET, text
    assert read_value("data:,a%20b") == b"a b"


@pytest.mark.parametrize(
    "text", ["", "file:///no/such", "file://host/key", "data:;base64,!!", "data:", "no base64!", "env:KEY"]
)
def test_what_names_no_key_is_refused_without_being_shown(text: str) -> None:
    if text == "":
        assert read_value(text) == b""
        return
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the texts differ
        read_value(text)
    assert "!!" not in str(caught.value)
    assert "no base64!" not in str(caught.value)


BAD: list[tuple[str, dict[str, Any]]] = [
    ("authenticationProviders: must name", {"providers": ()}),
    ("authenticationProviders: there is no x.Sasl", {"providers": (TOKEN, "x.Sasl")}),
    ("needs one of tokenSecretKey, tokenPublicKey, quireTokenKeySet: none is set", {"token_secret_key": ""}),
    ("tokenSecretKey and tokenPublicKey are set", {"token_public_key": url(public_der(rsa_key()))}),
    ("tokenSecretKey: a secret key needs at least 32 bytes", {"token_secret_key": url(b"short")}),
    ("tokenSecretKey: it is neither", {"token_secret_key": "not base64"}),
    ("tokenPublicKey: it is not a public key", {"token_secret_key": "", "token_public_key": url(b"x")}),
    (
        "tokenPublicKey: RS256 needs a key of kind RSA",
        {"token_secret_key": "", "token_public_key": url(public_der(ec_key()))},
    ),
    (
        "tokenPublicKey: ES256 needs a key of kind EC",
        {
            "token_secret_key": "",
            "token_public_key": url(public_der(rsa_key())),
            "token_public_algorithm": "ES256",
        },
    ),
    (
        "tokenPublicKey: an RSA key needs at least 2048 bits",
        {"token_secret_key": "", "token_public_key": url(public_der(rsa.generate_private_key(65537, 1024)))},
    ),
    (
        "tokenPublicKey: the curve",
        {
            "token_secret_key": "",
            "token_public_key": url(public_der(ec.generate_private_key(ec.SECP256K1()))),
            "token_public_algorithm": "ES256",
        },
    ),
    ("quireTokenKeySet: it is not a JSON Web Key Set", {"token_secret_key": "", "token_key_set": url(b"[]")}),
    ("quireTokenKeySet: the set has no key", {"token_secret_key": "", "token_key_set": url(b'{"keys":[]}')}),
    (
        "quireTokenKeySet: key 1 of the set is not a public key",
        {"token_secret_key": "", "token_key_set": url(b'{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}')},
    ),
    ("tokenAudienceClaim", {"token_audience_claim": "aud"}),
    ("tokenAudienceClaim", {"token_audience": "quire"}),
    ("basicAuthConf: AuthenticationProviderBasic needs", {"providers": (BASIC,), "users": ""}),
    ("basicAuthConf: line 1", {"providers": (BASIC,), "users": url(b"admin")}),
    ("openIDAllowedTokenIssuers: AuthenticationProviderOpenID needs", {"providers": (OPEN_ID,)}),
    ("openIDAllowedAudiences", {"providers": (OPEN_ID,), "openid_issuers": ("https://one",)}),
    (
        "openIDAllowedTokenIssuers: the keys of https://one are not fetched",
        {"providers": (OPEN_ID,), "openid_issuers": ("https://one",), "openid_audiences": ("q",)},
    ),
    (
        "quireOpenIDKeySets: each is issuer=path",
        {
            "providers": (OPEN_ID,),
            "openid_issuers": ("https://one",),
            "openid_audiences": ("q",),
            "openid_key_sets": ("https://two=/x",),
        },
    ),
]


@pytest.mark.parametrize(("why", "options"), BAD, ids=[why for why, _ in BAD])
def test_what_cannot_be_obeyed_ends_the_start_with_the_key(why: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        authentication(**options)
    assert why in str(caught.value)


def test_a_secret_is_in_no_repr() -> None:
    options = AuthenticationOptions(
        enabled=True, providers=(TOKEN,), token_secret_key=DATA_URL, client_parameters="token:abc", users="u:p"
    )
    checks = load(options)
    [provider] = checks._tried(None)
    for each in (options, checks, provider, Presented(b"abc", b"def")):
        text = repr(each)
        for secret in (DATA_URL, repr(SECRET), "token:abc", "u:p", "b'abc'", "b'def'"):
            assert secret not in text
    assert checks.identify("token", Presented(token().encode()), 0).role == "alice"
