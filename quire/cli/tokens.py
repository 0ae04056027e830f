"""`quire tokens`: keys and tokens of clients, with the options of Pulsar's `bin/pulsar tokens`. Either reads the
keys and tokens of the other."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(no_args_is_help=True, help="Make and check keys and tokens.")

KEY = "file:///path, data:;base64,..., a path, or base64"
SecretKey = Annotated[str | None, typer.Option("--secret-key", "-sk", help=f"The secret key: {KEY}.")]
TokenArgument = Annotated[str | None, typer.Argument(show_default="the environment variable TOKEN", help="The token.")]
Stdin = Annotated[bool, typer.Option("--stdin", "-i", help="Read the token from standard input.")]
TokenFile = Annotated[Path | None, typer.Option("--token-file", "-f", help="Read the token from a file.")]


@app.callback()
def tokens() -> None:
    """Make and check keys and tokens."""


@app.command("create-secret-key")
def create_secret_key(
    algorithm: Annotated[str, typer.Option("--signature-algorithm", "-a", help="HS256, HS384 or HS512.")] = "HS256",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write to.", show_default="standard output")
    ] = None,
    in_base64: Annotated[bool, typer.Option("--base64", "-b", help="Write the key in base64.")] = False,
) -> None:
    """Make a secret key."""

    def make() -> None:
        from broker.security.authentication.making import secret_bytes

        key = os.urandom(secret_bytes(algorithm))
        data = base64.b64encode(key) if in_base64 else key
        if output is not None:
            _write(output, data, secret=True)
        else:
            sys.stdout.buffer.write(data)
            sys.stdout.flush()

    _run(make)


@app.command("create-key-pair")
def create_key_pair(
    private: Annotated[Path, typer.Option("--output-private-key", help="File to write the private key to.")],
    public: Annotated[Path, typer.Option("--output-public-key", help="File to write the public key to.")],
    algorithm: Annotated[
        str, typer.Option("--signature-algorithm", "-a", help="RS, PS or ES, with 256, 384 or 512.")
    ] = "RS256",
) -> None:
    """Make a private key, and the public key for brokers."""

    def make() -> None:
        from broker.security.authentication.making import encoded, key_pair

        private_data, public_data = encoded(key_pair(algorithm))
        _write(private, private_data, secret=True)
        _write(public, public_data)

    _run(make)


@app.command()
def create(
    subject: Annotated[str, typer.Option("--subject", "-s", help="Role of the token.")],
    secret_key: SecretKey = None,
    private_key: Annotated[str | None, typer.Option("--private-key", "-pk", help=f"The private key: {KEY}.")] = None,
    algorithm: Annotated[
        str, typer.Option("--signature-algorithm", "-a", help="Algorithm, with a private key.")
    ] = "RS256",
    expiry: Annotated[
        str | None,
        typer.Option(
            "--expiry-time", "-e", help="Time until it expires, such as 30m, 1h, 3d, 10y.", show_default="never"
        ),
    ] = None,
    headers: Annotated[
        list[str] | None, typer.Option("--headers", "-hs", help="A further header, as key=value; may be repeated.")
    ] = None,
) -> None:
    """Make a token, and print it."""

    def make() -> None:
        from broker.security.authentication.keys import read_value
        from broker.security.authentication.making import seconds_of, token_of_key, token_of_secret

        pairs = [each.partition("=") for each in headers or ()]
        if not all(equals and name for name, equals, _ in pairs):
            raise ValueError("--headers takes key=value")
        further = {name: value for name, _, value in pairs}
        claims: dict[str, Any] = {"sub": subject}
        if expiry is not None:
            claims["exp"] = int(time.time()) + seconds_of(expiry)
        key, is_secret = _one_key(secret_key, private_key, "--private-key")
        data = read_value(key)
        print(token_of_secret(data, claims, further) if is_secret else token_of_key(data, algorithm, claims, further))

    _run(make)


@app.command()
def show(token: TokenArgument = None, stdin: Stdin = False, token_file: TokenFile = None) -> None:
    """Print the header and the claims of a token. Its signature is not checked."""

    def make() -> None:
        from broker.security.authentication.signed import header_of, unverified_claims

        data = _token(token, token_file, stdin=stdin)
        print(json.dumps(header_of(data)), "---", json.dumps(unverified_claims(data)), sep="\n")

    _run(make)


@app.command()
def validate(
    token: TokenArgument = None,
    secret_key: SecretKey = None,
    public_key: Annotated[str | None, typer.Option("--public-key", "-pk", help=f"The public key: {KEY}.")] = None,
    algorithm: Annotated[
        str, typer.Option("--signature-algorithm", "-a", help="Algorithm, with a public key.")
    ] = "RS256",
    stdin: Stdin = False,
    token_file: TokenFile = None,
) -> None:
    """Check signature and dates of a token, and print its claims. Exit code 1: it is not valid."""

    def make() -> None:
        from broker.security.authentication import keys, signed

        key, is_secret = _one_key(secret_key, public_key, "--public-key")
        data = keys.read_value(key)
        if is_secret:
            verifying = signed.secret(data)
        else:
            public = keys.public_key(data)
            keys.check_algorithm(algorithm, public)
            verifying = signed.public(public)
        claims = signed.verified_claims(_token(token, token_file, stdin=stdin), (verifying,))
        signed.check_dates(claims, int(time.time() * 1000), 0)
        print(json.dumps(claims))

    _run(make)


def _run(make: Callable[[], None]) -> None:
    """Run a command; errors become a line and exit code 1."""
    from broker.security.authentication.errors import AuthenticationError

    try:
        make()
    except (ValueError, AuthenticationError) as error:
        print(f"quire tokens: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except OSError as error:
        print(f"quire tokens: {error.filename}: {error.strerror}", file=sys.stderr)
        raise SystemExit(1) from None


def _one_key(secret: str | None, other: str | None, name: str) -> tuple[str, bool]:
    """Return the key that is given, and whether it is a secret. Raises ValueError."""
    if secret is not None and other is None:
        return secret, True
    if other is not None and secret is None:
        return other, False
    raise ValueError(f"give either --secret-key or {name}")


def _token(argument: str | None, file: Path | None, *, stdin: bool) -> bytes:
    if argument is not None:
        return argument.strip().encode()
    if stdin:
        return sys.stdin.readline().strip().encode()
    if file is not None:
        return file.read_bytes().strip()
    if "TOKEN" in os.environ:
        return os.environ["TOKEN"].strip().encode()
    raise ValueError("give the token as the argument, with --stdin, with --token-file or in the environment as TOKEN")


def _write(path: Path, data: bytes, *, secret: bool = False) -> None:
    """Write a file; only its owner may read a secret."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if secret else 0o644)
    with os.fdopen(descriptor, "wb") as file:
        if secret:
            os.fchmod(descriptor, 0o600)
        file.write(data)
