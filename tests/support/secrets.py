"""Secrets of a secure cluster, in each form in which something could show them, and a search for them."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from tools.local_cluster.security import ADMIN, BROKER, CLIENT, Security

_ARMOUR = re.compile(r"-----[A-Z ]+-----")


class Secrets:
    """Texts that nothing may show, each with its name."""

    def __init__(self, security: Security, **more: str) -> None:
        """`more`: further ones."""
        self._texts: dict[str, str] = {}
        for role in (ADMIN, BROKER, CLIENT):
            token = security.token(role).read_text()
            self.add(f"token of {role}", token)
            self.add(f"signature of the token of {role}", token.rpartition(".")[2])
        for key in security.folder.glob("*.key"):
            self.add_key(key)
        data = (security.folder / "token.private").read_bytes()
        self.add("key of tokens, in base64", base64.b64encode(data).decode())
        self.add("key of tokens, in hex", data.hex())
        self.add("repr of the key of tokens", repr(data)[2:-1])
        user, _, password = security.password.read_text().strip().partition(":")
        self.add("password of the bookies", password)
        self.add("hash of that password", (security.folder / "bookies.htpasswd").read_text().strip().partition(":")[2])
        self.add("user and password", base64.b64encode(f"{user}:{password}".encode()).decode())
        for name, text in more.items():
            self.add(name, text)

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, name: str, text: str) -> None:
        text = text.strip()
        assert len(text) >= 8, f"{name} is too short to be searched for"
        self._texts[name] = text

    def add_key(self, path: Path) -> None:
        """Add the lines of a private key, without the last one, which is of its public part."""
        lines = _ARMOUR.sub("", path.read_text()).split()
        assert len(lines) > 1, f"{path} is no key"
        for number, line in enumerate(lines[:-1]):
            self.add(f"{path.name}, line {number}", line)

    def found_in(self, text: str) -> list[str]:
        """Return the names of the secrets that a text shows."""
        return [name for name, secret in self._texts.items() if secret in text]
