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
from secrets import token_bytes
from typing import Final

from quire.service.neighbours.addresses import place_of
from quire.service.neighbours.windows import Windows

WINDOW_S: Final = 60.0
ADDRESSES_MAX: Final = 10_000
CREDENTIALS_MAX: Final = 10_000
"""Right ones, and as many wrong ones, of which the hash is kept."""
TOO_MANY: Final = "too many wrong credentials from this address in a minute; these were not looked at"
KEY_BYTES: Final = 32


class Logins:
    """Attempts at one server. Times are given by the caller, in seconds."""

    def __init__(self, failures_max: int) -> None:
        """`failures_max`: different wrong credentials of an address in a minute; 0: no bound."""
        self._failures_max = failures_max
        self._key = token_bytes(KEY_BYTES)
        self._failures: Windows[str] = Windows(WINDOW_S, ADDRESSES_MAX)
        self._wrong: dict[bytes, tuple[float, str]] = {}
        """When they are looked at again, and why they were refused; in the order of these times."""
        self._right: dict[bytes, object] = {}
        """Right credentials, by their hashes, with what they proved."""
        self.unchecked = 0
        """Attempts refused without a check."""

    def refusal(self, peer: str, credentials: bytes, now: float, provider: str = "") -> str:
        """Return why the credentials of a client `peer` (host:port) are refused unchecked; empty: they are checked.
        `provider`: the one that would check them."""
        if not credentials:
            return ""
        known = self._hash(credentials, provider)
        if (wrong := self._wrong.get(known)) is not None and wrong[0] > now:
            self.unchecked += 1
            return wrong[1]
        if not self._failures_max or known in self._right:
            return ""
        if self._failures.count(place_of(peer), now) < self._failures_max:
            return ""
        self.unchecked += 1
        return TOO_MANY

    def count(self, peer: str, now: float) -> None:
        """Count an attempt of a client, whose credentials were checked by all that could be, and are wrong."""
        self._failures.add(place_of(peer), now)

    def failed(
        self, credentials: bytes, reason: str, now: float, provider: str = "", *, may_pass: bool = False
    ) -> None:
        """Note that a provider has checked credentials and they are wrong. `may_pass`: time can make them right."""
        if not credentials:
            return
        known = self._hash(credentials, provider)
        self._right.pop(known, None)
        if may_pass:
            return
        self._wrong.pop(known, None)
        for each in [each for each, (until, _) in self._first_wrong() if until <= now]:
            del self._wrong[each]
        if len(self._wrong) >= CREDENTIALS_MAX:
            del self._wrong[next(iter(self._wrong))]
        self._wrong[known] = (now + WINDOW_S, reason)

    def succeeded(self, credentials: bytes, proved: object, provider: str = "") -> None:
        """Note what credentials prove: they are looked at again whatever their address does."""
        if not credentials:
            return
        known = self._hash(credentials, provider)
        if known not in self._right:
            if len(self._right) >= CREDENTIALS_MAX:
                del self._right[next(iter(self._right))]
            self._right[known] = proved

    def _first_wrong(self) -> list[tuple[bytes, tuple[float, str]]]:
        """Return the two oldest wrong ones: one comes, so as many go in time."""
        found = []
        for each in self._wrong.items():
            found.append(each)
            if len(found) == 2:
                break
        return found

    def proved(self, credentials: bytes, provider: str = "") -> object | None:
        """Return what credentials proved before; None: nothing that is known."""
        return self._right.get(self._hash(credentials, provider))

    def _hash(self, credentials: bytes, provider: str) -> bytes:
        return hashlib.blake2b(provider.encode() + b"\0" + credentials, key=self._key, digest_size=16).digest()
