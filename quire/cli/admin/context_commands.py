"""`quire admin context`: clusters by name."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from quire.cli.admin.contexts import SECRETS, Contexts, check_private, load, path_of, save
from quire.cli.admin.errors import AdminCommandError, CommandLineError
from quire.cli.admin.rendering.tables import Table, printed

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Clusters by name, with their addresses and credentials."
)
Name = Annotated[str, typer.Argument(help="Name of the context.")]
File = Annotated[Path | None, typer.Option(help="Absolute or relative path; it is stored as an absolute one.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def contexts() -> None:
    """Clusters by name, with their addresses and credentials."""


@app.command()
def create(
    name: Name,
    url: Annotated[str, typer.Option("--url", "--admin-url", help="Web address of any broker.")],
    token_file: File = None,
    basic_file: Annotated[Path | None, typer.Option(help="File with user:password.")] = None,
    certificate_file: File = None,
    key_file: File = None,
    trust_file: Annotated[Path | None, typer.Option(help="File of the authorities to trust.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Trust any certificate.")] = False,
    skip_hostname_verification: Annotated[
        bool, typer.Option("--skip-hostname-verification", help="Take a certificate of another name.")
    ] = False,
    timeout: Annotated[float | None, typer.Option(help="Seconds to wait for an answer.")] = None,
    replaces: Annotated[bool, typer.Option("--replace", help="Replace a context of this name.")] = False,
) -> None:
    """Add a context. The first one becomes the current one. Files with credentials need mode 0600."""

    def change(found: Contexts) -> Contexts:
        if name in found.contexts and not replaces:
            raise CommandLineError(f"context {name} exists: give --replace, or another name")
        if urlsplit(url).scheme not in ("http", "https"):
            raise CommandLineError(f"--url {url!r} is no web address: give http://host:8080 or https://host:8443")
        if bool(certificate_file) != bool(key_file):
            raise CommandLineError("a certificate needs its key: give --certificate-file and --key-file")
        if token_file and basic_file:
            raise CommandLineError("give either --token-file or --basic-file")
        files = {
            "token_file": token_file,
            "basic_file": basic_file,
            "certificate_file": certificate_file,
            "key_file": key_file,
            "trust_file": trust_file,
        }
        keys: dict[str, Any] = {"url": url}
        for key, path in files.items():
            if path is None:
                continue
            keys[key] = str(path.absolute())
            try:
                path.stat()
                if key in SECRETS:
                    check_private(path)
            except OSError as error:
                raise CommandLineError(f"--{key.replace('_', '-')} {path} cannot be read: {error.strerror}") from None
        keys |= {"insecure": True} if insecure else {}
        keys |= {"skip_hostname_verification": True} if skip_hostname_verification else {}
        keys |= {} if timeout is None else {"timeout": timeout}
        return Contexts(found.current or name, {**found.contexts, name: keys})

    _run("create", change)


@app.command()
def use(name: Name) -> None:
    """Make a context the current one."""

    def change(found: Contexts) -> Contexts:
        found.get(name)
        return replace(found, current=name)

    _run("use", change)


@app.command()
def delete(name: Name) -> None:
    """Remove a context. Files with credentials stay."""

    def change(found: Contexts) -> Contexts:
        found.get(name)
        left = {key: keys for key, keys in found.contexts.items() if key != name}
        return Contexts("" if found.current == name else found.current, left)

    _run("delete", change)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Print the contexts; the current one has a star."""

    def show(found: Contexts) -> None:
        if as_json:
            print(json.dumps({"current": found.current or None, "contexts": dict(found.contexts)}, indent=2))
        elif not found.contexts:
            print("none")
        else:
            rows = [
                ["*" if name == found.current else "", name, keys["url"], _credentials(keys)]
                for name, keys in sorted(found.contexts.items())
            ]
            printed([Table("", ("", "name", "url", "credentials"), rows)])

    _run("list", show)


def _credentials(keys: Any) -> str:
    named = [key for key in ("token_file", "basic_file", "certificate_file") if key in keys]
    return f"{named[0].removesuffix('_file')} in {keys[named[0]]}" if named else "none"


def _run(name: str, change: Callable[[Contexts], Contexts | None]) -> None:
    path = path_of(os.environ)
    try:
        changed = change(load(path))
        if changed is not None:
            save(path, changed)
    except AdminCommandError as error:
        print(f"quire admin context {name}: {error}", file=sys.stderr)
        raise SystemExit(error.code) from None
