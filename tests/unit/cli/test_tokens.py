"""`quire tokens`, also with keys and tokens that Pulsar's own tool made."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broker.security.authentication.credentials import Presented
from quire.cli.main import app
from tests.support.credentials import TOKEN, authentication, url
from tests.support.credentials import token as signed_token

# Made by `bin/pulsar tokens` of Pulsar 4.2.4.
PULSAR = json.loads((Path(__file__).parent / "testdata" / "pulsar_tokens.json").read_text())


def quire(*words: str, code: int = 0, given: str | None = None, env: dict[str, str] | None = None) -> str:
    found = CliRunner().invoke(app, ["tokens", *words], input=given, env=env)
    assert found.exit_code == code, found.output
    return found.output


@pytest.mark.parametrize(("algorithm", "size"), [("HS256", 32), ("HS384", 48), ("HS512", 64)])
def test_a_token_of_a_new_secret_key_is_valid(tmp_path: Path, algorithm: str, size: int) -> None:
    key = tmp_path / "key"
    quire("create-secret-key", "--output", str(key), "-a", algorithm)
    assert len(key.read_bytes()) == size
    assert key.stat().st_mode & 0o777 == 0o600
    token = quire("create", "-s", "alice", "-sk", f"file://{key}", "-e", "1h").strip()
    header, _, claims = quire("show", token).splitlines()
    assert json.loads(header) == {"alg": algorithm}
    assert json.loads(claims)["sub"] == "alice"
    assert abs(json.loads(claims)["exp"] - time.time() - 3600) < 60
    assert json.loads(quire("validate", token, "-sk", str(key)))["sub"] == "alice"
    assert "signature" in quire("validate", token + "x", "-sk", str(key), code=1)
    assert "signature" in quire("validate", token, "-sk", url(bytes(64)), code=1)


@pytest.mark.parametrize("algorithm", ["RS256", "PS384", "ES256", "ES512"])
def test_a_token_of_a_new_key_pair_is_valid(tmp_path: Path, algorithm: str) -> None:
    private, public = tmp_path / "private", tmp_path / "public"
    quire("create-key-pair", "-a", algorithm, "--output-private-key", str(private), "--output-public-key", str(public))
    assert (private.stat().st_mode & 0o777, public.stat().st_mode & 0o777) == (0o600, 0o644)
    token = quire("create", "-s", "alice", "-pk", str(private), "-a", algorithm, "-hs", "kid=one").strip()
    assert json.loads(quire("show", token).splitlines()[0]) == {"alg": algorithm, "kid": "one"}
    assert json.loads(quire("validate", token, "-pk", str(public), "-a", algorithm)) == {"sub": "alice"}
    checks = authentication(
        providers=(TOKEN,), token_secret_key="", token_public_key=str(public), token_public_algorithm=algorithm
    )
    assert checks.identify("token", Presented(token.encode()), 0).role == "alice"


def test_a_key_is_printed_in_base64() -> None:
    assert len(base64.b64decode(quire("create-secret-key", "--base64"), validate=True)) == 32


@pytest.mark.parametrize("case", PULSAR, ids=lambda case: case["algorithm"])
def test_keys_and_tokens_of_the_original_are_taken(case: dict[str, str], tmp_path: Path) -> None:
    token, algorithm = case["token"], case["algorithm"]
    if "secret" in case:
        options = {"token_secret_key": case["secret"]}
        words = ["-sk", case["secret"]]
        mine = quire("create", "-s", "bob", "-sk", case["secret"]).strip()
    else:
        options = {"token_secret_key": "", "token_public_key": case["public"], "token_public_algorithm": algorithm}
        words = ["-pk", case["public"], "-a", algorithm]
        mine = quire("create", "-s", "bob", "-pk", case["private"], "-a", algorithm).strip()
    assert json.loads(quire("validate", token, *words)) == {"sub": "alice"}
    checks = authentication(providers=(TOKEN,), **options)
    for text, role in ((token, "alice"), (mine, "bob")):
        assert checks.identify("token", Presented(text.encode()), 0).role == role
    assert json.loads(quire("show", mine).splitlines()[0]) == json.loads(quire("show", token).splitlines()[0])


def test_a_token_comes_from_an_argument_a_file_the_input_or_the_environment(tmp_path: Path) -> None:
    token = PULSAR[0]["token"]
    file = tmp_path / "token"
    file.write_text(token + "\n")
    expected = quire("show", token)
    assert quire("show", "--stdin", given=token + "\n") == expected
    assert quire("show", "-f", str(file)) == expected
    assert quire("show", env={"TOKEN": token}) == expected
    assert "TOKEN" in quire("show", code=1)


def test_an_expired_token_is_not_valid() -> None:
    assert "expired" in quire("validate", signed_token(exp=1, key=bytes(32)), "-sk", url(bytes(32)), code=1)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("create", "-s", "a"), "either --secret-key or --private-key"),
        (("create", "-s", "a", "-sk", "c2VjcmV0", "-pk", "c2VjcmV0"), "either --secret-key or --private-key"),
        (("create", "-s", "a", "-sk", "c2VjcmV0"), "at least 32 bytes"),
        (("create", "-s", "a", "-sk", "no base64"), "neither a file:"),
        (("create", "-s", "a", "-sk", url(bytes(32)), "-e", "soon"), "not a time"),
        (("create", "-s", "a", "-sk", url(bytes(32)), "-hs", "kid"), "key=value"),
        (("create", "-s", "a", "-sk", url(bytes(32)), "-hs", "alg=none"), "alg follows from the key"),
        (("create", "-s", "a", "-pk", url(bytes(32))), "not a private key"),
        (("create-secret-key", "-a", "RS256"), "not an algorithm of secret keys"),
        (
            ("create-key-pair", "-a", "none", "--output-private-key", "x", "--output-public-key", "y"),
            "not an algorithm of key pairs",
        ),
        (("create-secret-key", "-o", "/no/such/folder/key"), "No such file"),
        (("validate", "x", "-sk", url(bytes(32))), "malformed"),
        (("show", "x"), "malformed"),
    ],
)
def test_what_cannot_be_done_is_refused(words: tuple[str, ...], why: str) -> None:
    assert why in quire(*words, code=1)
