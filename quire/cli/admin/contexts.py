"""Contexts: named clusters, in a file of the user.

    current = "production"

    [contexts.production]
    url = "https://pulsar.example.org:8443"
    token_file = "/home/alice/.quire/token"
    trust_file = "/etc/ssl/pulsar-ca.pem"

The file is `quire/contexts.toml` under XDG_CONFIG_HOME, which is ~/.config by default. It has no credentials: these
are in files of their own, which only their owner may read. A command uses the context that --context names, else
QUIRE_CONTEXT, else the current one, else none. Options of the command line take precedence.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import tomllib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from quire.cli.admin.connection import DEFAULT_TIMEOUT_S, Target
from quire.cli.admin.errors import CommandLineError

ENVIRONMENT: Final = "QUIRE_CONTEXT"
TEXTS: Final = ("url", "token_file", "basic_file", "certificate_file", "key_file", "trust_file")
FLAGS: Final = ("insecure", "skip_hostname_verification")
NUMBERS: Final = ("timeout",)
SECRETS: Final = ("token_file", "basic_file", "key_file")
_KEYS: Final = (*TEXTS, *FLAGS, *NUMBERS)


@dataclass(frozen=True, slots=True)
class Contexts:
    """Content of the file."""

    current: str = ""
    contexts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def get(self, name: str) -> Mapping[str, Any]:
        """Return a context. Raises CommandLineError."""
        if name not in self.contexts:
            known = f": there are {', '.join(sorted(self.contexts))}" if self.contexts else ""
            raise CommandLineError(f"no context {name}{known}; `quire admin context create {name} --url ...` makes it")
        return self.contexts[name]


def path_of(environment: Mapping[str, str]) -> Path:
    """Return the path of the file."""
    base = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME") or "~", ".config")
    return Path(base).expanduser() / "quire" / "contexts.toml"


def load(path: Path) -> Contexts:
    """Return what the file has; nothing if there is none. Raises CommandLineError."""
    try:
        check_private(path)
        return parse(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandLineError(f"{path} cannot be read: {error}") from None


def parse(text: str, name: str = "contexts.toml") -> Contexts:
    """Return the content of a file. Raises CommandLineError, which names the key."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CommandLineError(f"{name} is not TOML: {error}. Correct it, or create the contexts again") from None
    contexts = found.pop("contexts", {})
    current = found.pop("current", "")
    if found or not isinstance(contexts, dict) or not isinstance(current, str):
        unknown = ", ".join(found) or "contexts"
        raise CommandLineError(f"{name}: {unknown} is not understood; it has `current` and tables [contexts.NAME]")
    for context, keys in contexts.items():
        if not isinstance(keys, dict):
            raise CommandLineError(f"{name}: contexts.{context} is no table")
        for key, value in keys.items():
            kind = str if key in TEXTS else bool if key in FLAGS else (int, float) if key in NUMBERS else None
            if kind is None:
                raise CommandLineError(f"{name}: contexts.{context}.{key} is no key; there are {', '.join(_KEYS)}")
            if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
                raise CommandLineError(f"{name}: contexts.{context}.{key} = {value!r} has a wrong type")
        if "url" not in keys:
            raise CommandLineError(f"{name}: contexts.{context} has no url")
    return Contexts(current, contexts)


def render(found: Contexts) -> str:
    """Return the file as text."""
    lines = [f"current = {_text(found.current)}"] if found.current else []
    for name in sorted(found.contexts):
        lines += ["", f"[contexts.{_text(name)}]"]
        lines += [f"{key} = {_value(found.contexts[name][key])}" for key in _KEYS if key in found.contexts[name]]
    return "\n".join(lines).lstrip("\n") + "\n"


def save(path: Path, found: Contexts) -> None:
    """Write the file, as a whole or not at all; only its owner may read it. Raises CommandLineError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".contexts-")  # (mode 0600)
        with ExitStack() as unless_replaced:
            unless_replaced.callback(os.unlink, name)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(render(found))
                file.flush()
                os.fsync(descriptor)
            os.replace(name, path)
            unless_replaced.pop_all()
    except OSError as error:
        raise CommandLineError(f"{path} cannot be written: {error.strerror}") from None


def check_private(path: Path) -> None:
    """Raise CommandLineError if others than the owner may read or write a file; FileNotFoundError if there is none."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise CommandLineError(f"{path} has mode {mode:04o}, so others can use it: chmod 600 {path}")


def target_of(name: str, keys: Mapping[str, Any]) -> Target:
    """Return the target of a context. Raises CommandLineError: a file with credentials that others can read."""
    for key in SECRETS:
        if key in keys:
            try:
                check_private(Path(keys[key]))
            except OSError as error:
                raise CommandLineError(f"context {name}: {key} {keys[key]} cannot be read: {error.strerror}") from None
    plugin, parameters = "", ""
    if "token_file" in keys:
        plugin, parameters = "token", Path(keys["token_file"]).absolute().as_uri()
    elif "basic_file" in keys:
        plugin, parameters = "basic", _basic(Path(keys["basic_file"]))
    elif "certificate_file" in keys:
        plugin = "tls"
    return Target(
        url=keys["url"],
        plugin=plugin,
        parameters=parameters,
        trust_file=keys.get("trust_file", ""),
        certificate_file=keys.get("certificate_file", ""),
        key_file=keys.get("key_file", ""),
        insecure=keys.get("insecure", False),
        verify_host=not keys.get("skip_hostname_verification", False),
        timeout_s=float(keys.get("timeout", DEFAULT_TIMEOUT_S)),
        context=name,
    )


def _basic(path: Path) -> str:
    try:
        user, _, password = path.read_text(encoding="utf-8").strip().partition(":")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandLineError(f"{path} cannot be read: {error}") from None
    return json.dumps({"userId": user, "password": password})


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return _text(value) if isinstance(value, str) else str(value)
