"""Credentials of clients (quire.client.authentication), and the connections that use them."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from quire.client import authentication
from quire.client.authentication import Credentials, CredentialsError, from_plugin
from quire.client.client import open_client
from quire.client.errors import NoCredentialsError, NotAllowedError
from quire.client.options import ClientOptions
from tests.support.credentials import token
from tests.unit.broker.peers import Room
from tests.unit.broker.security.served import served

SECRET = "s3cret-value"
PACKAGE = "org.apache.pulsar.client.impl.auth."


def test_credentials_of_every_kind(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    users = tmp_path / "user"
    users.write_text(f"admin:{SECRET}\n")
    for made in (
        authentication.token(SECRET),
        authentication.token_file(file),
        authentication.token_from(lambda: SECRET),
    ):
        assert (made.method, made.data()) == ("token", SECRET.encode())
        assert made.headers() == {"X-Pulsar-Auth-Method-Name": "token", "Authorization": f"Bearer {SECRET}"}
    for made in (authentication.basic("admin", SECRET), authentication.basic_file(users)):
        encoded = base64.b64encode(f"admin:{SECRET}".encode()).decode()
        assert (made.method, made.data()) == ("basic", f"admin:{SECRET}".encode())
        assert made.headers() == {"X-Pulsar-Auth-Method-Name": "basic", "Authorization": f"Basic {encoded}"}
    made = authentication.certificate()
    assert (made.data(), made.headers()) == (b"", {"X-Pulsar-Auth-Method-Name": "tls"})


def test_a_file_and_a_function_are_asked_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    of_file = authentication.token_file(file)
    texts = iter(("one", "two"))
    of_function = authentication.token_from(lambda: next(texts))
    assert (of_file.data(), of_function.data()) == (b"one", b"one")
    file.write_text("two")
    assert (of_file.data(), of_function.data()) == (b"two", b"two")
    file.unlink()
    with pytest.raises(CredentialsError, match="cannot be read"):
        of_file.data()


def test_credentials_are_equal_if_their_source_is() -> None:
    """Clients are shared by their options."""
    assert authentication.token_file("a") == authentication.token_file("a")
    assert len({authentication.token_file("a"), authentication.token_file("a"), authentication.token_file("b")}) == 2
    assert ClientOptions(credentials=authentication.token("a")) == ClientOptions(credentials=authentication.token("a"))
    assert authentication.token("a") != authentication.token("b")


def test_a_secret_is_in_no_repr_and_no_error() -> None:
    def failing() -> str:
        raise RuntimeError(f"no {SECRET}")

    for made in (authentication.token(SECRET), authentication.basic("u", SECRET)):
        assert SECRET not in repr(made)
        assert SECRET not in repr(ClientOptions(credentials=made))
        assert SECRET not in str(made)
    bad: list[Any] = [
        lambda: authentication.token_from(failing).data(),
        lambda: authentication.token(f"{SECRET} {SECRET}"),
        lambda: authentication.token(SECRET * 10_000).data(),
        lambda: authentication.basic("a:b", SECRET),
        lambda: from_plugin(f"{PACKAGE}AuthenticationBasic", f'{{"userId": "{SECRET}"'),
        lambda: from_plugin(f"{PACKAGE}AuthenticationSasl", SECRET),
        lambda: from_plugin("", SECRET),
        lambda: from_plugin(f"{PACKAGE}AuthenticationTls", f"tlsKeyFile:{SECRET}"),
    ]
    for make in bad:
        with pytest.raises(CredentialsError) as caught:
            make()
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(authentication.token(SECRET))


@pytest.mark.parametrize(
    ("plugin", "parameters", "expected"),
    [
        ("", "", None),
        (f"{PACKAGE}AuthenticationDisabled", "", None),
        (f"{PACKAGE}AuthenticationToken", "token:abc", ("token", b"abc")),
        (f"{PACKAGE}AuthenticationToken", "abc", ("token", b"abc")),
        (f"{PACKAGE}AuthenticationToken", '{"token": "abc"}', ("token", b"abc")),
        ("token", "abc", ("token", b"abc")),
        (f"{PACKAGE}AuthenticationBasic", '{"userId": "a", "password": "b"}', ("basic", b"a:b")),
        ("basic", '{"username": "a", "password": "b"}', ("basic", b"a:b")),
        (f"{PACKAGE}AuthenticationTls", "", ("tls", b"")),
    ],
)
def test_classes_of_the_original_are_understood(plugin: str, parameters: str, expected: Any) -> None:
    found = from_plugin(plugin, parameters)
    assert (None if found is None else (found.method, found.data())) == expected


def test_a_token_file_is_named_by_a_url(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    file.write_text("abc")
    found = from_plugin("token", f"file://{str(file).replace(' ', '%20')}")
    assert found is not None
    assert found.data() == b"abc"


@asynccontextmanager
async def client_of(room: Room, credentials: Credentials | None) -> AsyncIterator[Any]:
    options = ClientOptions(credentials=credentials, operation_timeout_s=5)
    async with served(room) as (world, url), open_client(world, url, options) as client:
        yield client


async def test_a_client_with_credentials_publishes_and_reads(secured: Room) -> None:
    for credentials in (authentication.token(token()), authentication.basic("admin", "123456")):
        async with client_of(secured, credentials) as client:
            producer = await client.producer(f"persistent://public/default/{credentials.method}")
            assert producer is not None
    roles = {each.principal and each.principal.role for each in secured.broker.connections}
    assert roles <= {"alice", "admin"}


@pytest.mark.parametrize("credentials", [None, authentication.token("wrong"), authentication.basic("admin", "wrong")])
async def test_a_client_without_right_credentials_fails_at_once(secured: Room, credentials: Credentials | None) -> None:
    async with client_of(secured, credentials) as client:
        with pytest.raises(NotAllowedError, match="AuthenticationError: Failed to authenticate"):
            await client.partitions("t", create=True)


async def test_credentials_that_cannot_be_read_are_an_error_with_their_file(secured: Room, tmp_path: Path) -> None:
    async with client_of(secured, authentication.token_file(tmp_path / "gone")) as client:
        with pytest.raises(NoCredentialsError, match="gone cannot be read"):
            await client.partitions("t", create=True)


async def test_a_client_refreshes_its_token_on_the_same_connection(secured: Room) -> None:
    import trio

    clock = secured.broker.context.world.clock
    made: list[str] = []

    def fresh() -> str:
        made.append(token(exp=clock.wall_ms() // 1000 + 100))
        return made[-1]

    async with client_of(secured, authentication.token_from(fresh)) as client:
        await client.partitions("t", create=True)
        [connection] = secured.broker.connections
        for _ in range(10):
            await trio.sleep(60)
            await client.partitions("t", create=True)
        assert list(secured.broker.connections) == [connection]
        assert len(made) >= 4


async def test_json_of_options_has_no_secret() -> None:
    """A crash report shows the repr of options."""
    assert SECRET not in json.dumps({"options": repr(ClientOptions(credentials=authentication.token(SECRET)))})
