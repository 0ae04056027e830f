"""Passwords (basic.py, quire/service/password_files.py, passwords.py): hashes of htpasswd, and what is refused."""

from __future__ import annotations

import base64

import pytest

from broker.security.authentication.credentials import Presented
from broker.security.authentication.errors import AuthenticationError
from quire.service.password_files import PASSWORD_BYTES_MAX, read_users
from quire.service.passwords import apr1, crypt
from tests.support.credentials import USERS, authentication

# Made with `perl -e 'print crypt(...)'` and `openssl passwd -apr1`.
CRYPT = {("myPassword", "rq"): "rqXexS6ZhobKA", ("", "ab"): "abmF1QH4PEr.E", ("password", "ab"): "abJnggxhB/yWI"}
APR1 = {
    ("myPassword", "r31....."): "$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/",
    ("123456", "FG4AO6aX"): "$apr1$FG4AO6aX$KGYPuMoLUou3i6vUkPUUf.",
}


@pytest.mark.parametrize("given", CRYPT)
def test_crypt_is_that_of_unix(given: tuple[str, str]) -> None:
    assert crypt(given[0].encode(), given[1]) == CRYPT[given]


@pytest.mark.parametrize("given", APR1)
def test_apr1_is_that_of_apache(given: tuple[str, str]) -> None:
    assert apr1(given[0].encode(), given[1]) == APR1[given]


def role(data: bytes) -> str:
    return authentication().identify("basic", Presented(data), 0).role


def test_a_right_password_gives_the_role_of_its_user() -> None:
    assert role(b"admin:123456") == "admin"
    assert role(b"old:myPassword") == "old"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b":",
        b"admin",
        b"admin:",
        b":123456",
        b"admin:wrong",
        b"nobody:123456",
        b"admin:123456:x",
        b"admin:\xff",
        b"\xff:x",
        b"admin:" + b"1" * PASSWORD_BYTES_MAX,
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(AuthenticationError):
        role(data)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no user"),
        ("admin\n", "line 1 is not"),
        ("a:rqXexS6ZhobKA\nb:$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC", "line 2 has no hash"),
        ("a:{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=", "line 1 has no hash"),
        ("a:plain", "line 1 has no hash"),
        ("a:rqXexS6ZhobKA\na:rqXexS6ZhobKA", "line 2 names a user again"),
        ("a:rqXexS6ZhobKA:0", "line 1 is not"),
    ],
)
def test_a_file_that_cannot_be_obeyed_is_refused_by_its_line(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        read_users(text.encode())
    assert "VBPu" not in str(caught.value)
    assert "plain" not in str(caught.value)


def test_a_file_of_users_is_read() -> None:
    assert list(read_users(USERS.encode() + b"\n\n")) == ["admin", "old"]


def test_a_password_of_a_request_is_in_base64() -> None:
    checks = authentication()
    text = base64.b64encode(b"admin:123456").decode()
    assert checks.of_request({"authorization": f"Basic {text}"}, None, 0).role == "admin"
    assert checks.of_request({"authorization": f"BASIC {text}"}, None, 0).role == "admin"
    for bad in (f"Basic {text}x", "Basic", "Basic !", f"basic{text}"):
        with pytest.raises(AuthenticationError):
            checks.of_request({"authorization": bad}, None, 0)
