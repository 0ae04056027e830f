"""The handshake of a connection: CONNECT, its authentication, CONNECTED; later AUTH_CHALLENGE and AUTH_RESPONSE.

Everything is decided in the pass: checking credentials takes a few milliseconds at most, and a connection presents some
once, and again only when it was asked for.
"""

from __future__ import annotations

from broker import replies
from broker.config import SERVER_VERSION
from broker.connections.bounds import ProtocolError
from broker.connections.connection import Connection
from broker.connections.refusals import refuse
from broker.security.authentication.authentication import Authentication, Handshake, Login
from broker.security.authentication.credentials import Presented
from broker.security.authentication.errors import AuthenticationError, RolesError
from broker.security.authentication.refreshing import CHALLENGE, LoginSession, RefreshStep
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.frames import PROTOCOL_VERSION

CLIENT_VERSION_MAX = 256
"""Maximum characters kept of a client's version."""
NO_METHOD = "none"
"""Method of a client that names none."""


def connect(connection: Connection, command: pb.BaseCommand) -> None:
    """Answer CONNECTED, or refuse the client. Raises ProtocolError at a second CONNECT."""
    request = command.connect
    if connection.closed:
        return  # refused before, by an earlier frame of the same chunk
    if connection.connected:
        raise ProtocolError("a second CONNECT")
    authentication = connection.context.authentication
    if authentication is not None:
        login = _login(connection, authentication, request)
        if login is None:
            return
        connection.principal = login.principal
        if login.expires_ms is not None:
            connection.session = LoginSession(login, request.feature_flags.supports_auth_refresh)
    role = "" if connection.principal is None else connection.principal.subject
    if role and connection.neighbour is not None and (refused := connection.neighbour.log_in(role)):
        error = AuthenticationError(refused, "TOO_MANY_CONNECTIONS")
        _refuse(connection, error, pb.NotAllowedError, refused)
        return
    connection.begin()
    connection.context.connects += 1
    connection.client_version = request.client_version[:CLIENT_VERSION_MAX]
    connection.takes_entry_metadata = request.feature_flags.supports_broker_entry_metadata
    version = min(PROTOCOL_VERSION, request.protocol_version)
    answer = replies.connected(
        SERVER_VERSION, version, connection.context.options, refreshes=authentication is not None
    )
    connection.write((answer,))


def auth_response(connection: Connection, command: pb.BaseCommand) -> None:
    """Take newer credentials that were asked for, or end the connection. Raises ProtocolError if they were not."""
    authentication, session = connection.context.authentication, connection.session
    if authentication is None:
        connection.write((refuse(command),))
        return
    if session is None or not session.challenged:
        raise ProtocolError("AUTH_RESPONSE without AUTH_CHALLENGE")
    given = command.authResponse.response
    presented = Presented(given.auth_data, connection.stream.peer_certificate)
    now_ms = connection.context.world.clock.wall_ms()
    try:
        peer = connection.stream.peer
        session.login = authentication.refresh(session.login, given.auth_method_name, presented, now_ms, peer)
    except AuthenticationError as error:
        _refuse(connection, error, pb.AuthenticationError, "Failed to authenticate")
        return
    session.challenged = False
    connection.log.info("credentials refreshed", role=session.login.principal.role)


def refresh_expired(connection: Connection) -> None:
    """Ask for newer credentials if they have expired, or end the connection if it cannot have any."""
    session = connection.session
    if session is None or connection.closed:
        return
    step = session.next_step(connection.context.world.clock.wall_ms())
    if step is RefreshStep.CHALLENGE:
        connection.write((replies.auth_challenge(SERVER_VERSION, session.login.method, CHALLENGE),))
    elif step is not RefreshStep.KEEP:
        connection.log.info("connection ended", reason=step.value, role=session.login.principal.role)
        connection.abort(step.value)


def _login(connection: Connection, authentication: Authentication, request: pb.CommandConnect) -> Login | None:
    """Return the roles of a connection; None: it is refused."""
    certificate = connection.stream.peer_certificate
    handshake = Handshake(
        _method(request),
        Presented(request.auth_data, certificate),
        request.original_principal,
        request.original_auth_method or NO_METHOD,
        Presented(request.original_auth_data.encode(), certificate),
    )
    try:
        return authentication.login(handshake, connection.context.world.clock.wall_ms(), connection.stream.peer)
    except RolesError as error:
        _refuse(connection, error, pb.AuthorizationError, "Invalid roles.")
    except AuthenticationError as error:
        _refuse(connection, error, pb.AuthenticationError, "Failed to authenticate")
    return None


def _method(request: pb.CommandConnect) -> str:
    """Return the name of the method. Old clients have a number for it. Source: Pulsar's ServerCnx."""
    if request.HasField("auth_method_name"):
        return request.auth_method_name
    if request.HasField("auth_method"):
        return pb.AuthMethod.Name(request.auth_method).removeprefix("AuthMethod").lower()
    return NO_METHOD


def _refuse(connection: Connection, error: AuthenticationError, code: pb.ServerError, message: str) -> None:
    """Answer with an error that reveals nothing, log the reason, and end the connection."""
    if connection.context.rare_lines.admits("authentication failed", connection.stream.peer, str(error)):
        connection.log.warning("authentication failed", reason=str(error))
    connection.write((replies.error(replies.U64_MAX, code, message),))
    connection.context.turn.flush()
    connection.abort("authentication failed")
