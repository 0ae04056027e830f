"""Attempts to log in: what is refused without a look at the credentials (pure).

Why this is hard: a check of a password takes a millisecond of the event loop, so a flood of them must not be checked.
But an address may be that of a proxy, with good clients behind it, and a good client whose credentials have expired
reconnects as often as an attacker. So three things are told apart by a keyed hash of the credentials, which is all that
is kept of them. Those that were right before are always checked (or, where time does not matter, known). Those that
were wrong a moment ago are wrong again, at the cost of a look into a dict, and count for nobody. Only different wrong
ones count, which is what guessing needs; above the bound, an address waits for the end of its minute.
"""

from __future__ import annotations

import hashlib
from typing import Final

from quire.service.neighbours.windows import Windows
from quire.service.serve import address_of

WINDOW_S: Final = 60.0
ADDRESSES_MAX: Final = 10_000
CREDENTIALS_MAX: Final = 10_000
"""Right ones, and as many wrong ones, of which the hash is kept."""
TOO_MANY: Final = "too many wrong credentials from this address in a minute; these were not looked at"
KEY_BYTES: Final = 32


class Logins:
    """Attempts at one server. Times are given by the caller, in seconds."""

    def __init__(self, failures_max: int, key: bytes) -> None:
        """`failures_max`: different wrong credentials of an address in a minute; 0: no bound. `key`: random bytes."""
        self._failures_max = failures_max
        self._key = key
        self._failures: Windows[str] = Windows(WINDOW_S, ADDRESSES_MAX)
        self._wrong: dict[bytes, tuple[float, str]] = {}
        """When they are looked at again, and why they were refused; in the order of these times."""
        self._right: dict[bytes, None] = {}
        self.unchecked = 0
        """Attempts refused without a check."""

    def refusal(self, peer: str, credentials: bytes, now: float) -> str:
        """Return why the credentials of a client `peer` (host:port) are refused unchecked; empty: they are checked."""
        if not credentials:
            return ""
        known = self._hash(credentials)
        if (wrong := self._wrong.get(known)) is not None and wrong[0] > now:
            self.unchecked += 1
            return wrong[1]
        if self._failures_max and known not in self._right:
            if self._failures.count(address_of(peer), now) >= self._failures_max:
                self.unchecked += 1
                return TOO_MANY
        return ""

    def failed(self, peer: str, credentials: bytes, reason: str, now: float, *, may_pass: bool = False) -> None:
        """Note that credentials were checked and are wrong. `may_pass`: time can make them right."""
        if not credentials:
            return
        known = self._hash(credentials)
        self._right.pop(known, None)
        self._failures.add(address_of(peer), now)
        if may_pass:
            return
        self._wrong.pop(known, None)
        for each in [each for each, (until, _) in self._first_wrong() if until <= now]:
            del self._wrong[each]
        if len(self._wrong) >= CREDENTIALS_MAX:
            del self._wrong[next(iter(self._wrong))]
        self._wrong[known] = (now + WINDOW_S, reason)

    def succeeded(self, credentials: bytes) -> None:
        """Note that credentials are right: they are checked again whatever their address does."""
        if not credentials:
            return
        known = self._hash(credentials)
        if known not in self._right:
            if len(self._right) >= CREDENTIALS_MAX:
                del self._right[next(iter(self._right))]
            self._right[known] = None

    def _first_wrong(self) -> list[tuple[bytes, tuple[float, str]]]:
        """Return the two oldest wrong ones: one comes, so as many go in time."""
        found = []
        for each in self._wrong.items():
            found.append(each)
            if len(found) == 2:
                break
        return found

    def _hash(self, credentials: bytes) -> bytes:
        return hashlib.blake2b(credentials, key=self._key, digest_size=16).digest()
