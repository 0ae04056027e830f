"""Authentication from the bookie's side: a connection has no session before it is authenticated.

    AUTH                    checked; right: its answer, and the session begins. Wrong: UNAUTHORIZED (version 3), and the
                            connection ends
    other requests          UNAUTHORIZED, and nothing is done (version 3; adds and reads of version 2)
    other of version 2      the connection ends
    anything longer than FRAME_MAX, or not the protocol: the connection ends

All of it, START_TLS included, has `timeout_s`. An authenticated connection costs nothing more: its session does not
know of this. Source: BookKeeper's AuthHandler, BookieAuthZFactory and CertUtils.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import trio

from quire.service.log import get_logger
from quire.service.neighbours.logins import Logins
from quire.service.neighbours.rare_lines import RareLines
from quire.service.password_files import user_of
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.auth import PASSWORD_FILE, auth_message, decode_auth_message
from quire.wire.bookkeeper.errors import BookkeeperWireError
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import Opcode, Rc
from quire.world.doors import Stream
from quire.world.streams import send_all

FRAME_MAX: Final = 4 << 10
"""Bytes of a frame before authentication."""
TIMEOUT_S: Final = 10.0
"""Time from the connection to its authentication."""
_OPERATIONS: Final[Mapping[type, v3.Operation]] = {
    v3.WriteLacRequest: v3.Operation.WRITE_LAC,
    v3.ReadLacRequest: v3.Operation.READ_LAC,
    v3.ForceRequest: v3.Operation.FORCE_LEDGER,
    v3.ListOfEntriesRequest: v3.Operation.GET_LIST_OF_ENTRIES,
}

log = get_logger(__name__)


class Method(Protocol):
    """A way of authentication."""

    @property
    def plugin(self) -> str:
        """Name in AUTH messages."""

    def by_certificate(self, certificate: bytes | None) -> str:
        """Return the role of a connection by its certificate alone; empty: it has none yet. ValueError: never."""

    def by_payload(self, payload: bytes) -> str:
        """Return the role of an AUTH's payload. ValueError: the reason, without anything of the payload."""


@dataclass(frozen=True, slots=True)
class Passwords:
    """Users with passwords: Quire's plug-in."""

    users: Mapping[str, str] = field(repr=False)
    plugin: str = PASSWORD_FILE

    def by_certificate(self, certificate: bytes | None) -> str:
        return ""

    def by_payload(self, payload: bytes) -> str:
        return user_of(self.users, payload)


@dataclass(frozen=True, slots=True)
class CertificateRoles:
    """Certificates whose first role is one of `roles`: BookKeeper's BookieAuthZFactory. AUTH messages do not help."""

    roles: Collection[str]
    plugin: str = "BookieAuthZFactory"

    def by_certificate(self, certificate: bytes | None) -> str:
        role = "" if certificate is None else role_of(certificate)
        return role if role in self.roles else ""

    def by_payload(self, payload: bytes) -> str:
        raise ValueError("the connection has no certificate with an authorized role")


def role_of(certificate: bytes) -> str:
    """Return the first role in the organizational unit of a certificate (DER), `0:role,other;1:cluster`, or an empty
    string."""
    from cryptography import x509  # imported here, because most bookies do not need it
    from cryptography.x509.oid import NameOID

    try:
        found = x509.load_der_x509_certificate(certificate).subject.get_attributes_for_oid(
            NameOID.ORGANIZATIONAL_UNIT_NAME
        )
    except ValueError:
        return ""
    if not found:
        return ""
    roles = ""
    for part in str(found[0].value).split(";"):
        code, colon, names = part.partition(":")
        if colon and code == "0":
            roles = names
    return roles.split(",")[0].strip()


class OfferedAuthentication:
    """Authentication that a bookie asks of its clients."""

    __slots__ = ("logins", "method", "timeout_s")

    def __init__(self, method: Method, timeout_s: float = TIMEOUT_S, failures_max: int = 0) -> None:
        """`timeout_s`: time to authenticate. `failures_max`: different wrong credentials of one address in a minute;
        0: no bound."""
        self.method = method
        self.timeout_s = timeout_s
        self.logins = Logins(failures_max)


class AuthGate:
    """Decides about one connection, without I/O."""

    def __init__(
        self, method: Method, certificate: bytes | None, logins: Logins | None = None, peer: str = "", now: float = 0.0
    ) -> None:
        """`logins`: what was tried before. `peer`: the client's address. `now`: the time, in seconds."""
        self._method = method
        self._logins = logins or Logins(0)
        self._peer = peer
        self._now = now
        self._is_version_2 = False
        self.role = method.by_certificate(certificate)
        """The connection is authenticated if this is not empty."""
        self.refused = ""
        """Reason for which the connection ends, after the answer."""

    def answer(self, frame: bytes) -> bytes:
        """Return the answer to one whole frame. Not after the connection is authenticated or refused."""
        if not self._is_version_2 and v3.is_version_3(frame):
            request, *_ = v3.decode_requests(frame)
            if type(request) is not v3.NotVersion3:
                return self._version_3(request)
        self._is_version_2 = True
        first, *_ = v2.decode_requests(frame)
        return self._version_2(first)

    def _version_3(self, request: v3.Request) -> bytes:
        match request:
            case v3.AuthRequest():
                if self._authenticate(request.plugin, request.payload):
                    return v3.auth_response(request.txn_id, Rc.OK, self._method.plugin, b"")
                return v3.refusal(v3.Operation.AUTH, request.txn_id, Rc.UNAUTHORIZED)
            case v3.StartTlsRequest():
                return v3.start_tls_response(request.txn_id, Rc.BAD_REQUEST)
            case v3.AddRequest():
                run = request.run
                ids = range(run.first, run.first + run.count)
                return v3.add_responses(Rc.UNAUTHORIZED, run.ledger_id, ids, request.txns)
            case v3.ReadRequest():
                operation = v3.Operation.READ_ENTRY
                return v3.refusal(operation, request.txn_id, Rc.UNAUTHORIZED, request.ledger_id, request.entry_id)
            case v3.Unsupported():
                number, txn_id, _, ledger_id, entry_id = request
                return v3.refusal(number, txn_id, Rc.UNAUTHORIZED, ledger_id, entry_id)
            case v3.BookieInfoRequest():
                return v3.refusal(v3.Operation.GET_BOOKIE_INFO, request.txn_id, Rc.UNAUTHORIZED)
            case v3.NotVersion3():
                self.refused = "not the bookie protocol"
                return b""
            case _:
                return v3.refusal(_OPERATIONS[type(request)], request.txn_id, Rc.UNAUTHORIZED, request.ledger_id)

    def _version_2(self, request: v2.Request) -> bytes:
        match request:
            case v2.AuthRequest():
                try:
                    plugin, payload = decode_auth_message(request.message)
                except BookkeeperWireError:
                    self.refused = "an AUTH of version 2 that cannot be read"
                    return b""
                if self._authenticate(plugin, payload):
                    return v2.auth_response(auth_message(self._method.plugin, b""))
                return b""
            case Run():
                ids = range(request.first, request.first + request.count)
                return v2.add_responses(Rc.UNAUTHORIZED, request.ledger_id, ids)
            case v2.ReadRequest():
                return v2.response_head(Opcode.READ, Rc.UNAUTHORIZED, request.ledger_id, request.entry_id)
            case _:
                self.refused = "a request before authentication"
                return b""

    def _authenticate(self, plugin: str, payload: bytes) -> bool:
        if plugin != self._method.plugin:
            self.refused = f"the client has another plug-in; here it is {self._method.plugin}"
            return False
        logins = self._logins
        if refused := logins.refusal(self._peer, payload, self._now):
            self.refused = refused
            return False
        known = logins.proved(payload)
        if isinstance(known, str):
            self.role = known
            return True
        try:
            self.role = self._method.by_payload(payload)
        except ValueError as error:
            self.refused = str(error)
            logins.failed(payload, self.refused, self._now)
            logins.count(self._peer, self._now)
            return False
        logins.succeeded(payload, self.role)
        return True


async def authenticate(
    stream: Stream, received: bytes, offered: OfferedAuthentication, rare_lines: RareLines
) -> bytes | None:
    """Answer until the connection is authenticated; return bytes that belong to its first requests.

    `received`: bytes that were received before. None: it ended, or may not go on; the reason is logged. OSError. The
    caller sets the deadline, and closes `stream`.
    """
    gate = AuthGate(offered.method, stream.peer_certificate, offered.logins, stream.peer, trio.current_time())
    waiting = bytearray(received)
    buffer = memoryview(bytearray(FRAME_MAX))
    while not gate.role:
        length = int.from_bytes(waiting[:4], "big", signed=True)
        if len(waiting) >= 4 and not 4 <= length <= FRAME_MAX:
            gate.refused = f"a frame of {length} bytes before authentication; 4 to {FRAME_MAX} are allowed"
        elif len(waiting) >= 4 + length and len(waiting) >= 4:
            frame = bytes(waiting[: 4 + length])
            del waiting[: 4 + length]
            answer = gate.answer(frame)
            if answer:
                await send_all(stream, answer)
        else:
            size = await stream.receive_into(buffer)
            if not size:
                return None
            waiting += buffer[:size]
        if gate.refused:
            if rare_lines.admits("authentication failed", stream.peer, gate.refused):
                log.info("authentication failed", server="bookie", connection=stream.peer, reason=gate.refused)
            return None
    return bytes(waiting)
