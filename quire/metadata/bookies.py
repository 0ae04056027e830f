"""Bookies in the metadata: registration, addresses, and cookies.

    <root>/available/<bookie id>              ephemeral: BookieServiceInfoFormat; empty in the original's old versions
    <root>/available/readonly/<bookie id>     the same, for a bookie that takes no new entries
    <root>/cookies/<bookie id>                persistent: the bytes of the VERSION file

Source: BookKeeper's ZKRegistrationManager, BookieServiceInfoUtils.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import NamedTuple

import trio
from google.protobuf.message import DecodeError

from quire.metadata import paths
from quire.metadata.cookies import Cookie, decode_cookie, encode_cookie
from quire.metadata.errors import InvalidPathError, MalformedMetadataError, NoNodeError
from quire.metadata.local import ephemerals
from quire.metadata.store import ANY_VERSION, MetadataStore, Versioned
from quire.wire.bookkeeper.DataFormats_pb2 import BookieServiceInfoFormat

__all__ = [
    "BookieServiceInfo",
    "Cookie",
    "Endpoint",
    "available",
    "check_bookie_id",
    "decode_cookie",
    "decode_service_info",
    "delete_cookie",
    "encode_cookie",
    "encode_service_info",
    "keep_registered",
    "read_cookie",
    "readonly",
    "register",
    "registration_path",
    "service_info",
    "unregister",
    "web_url",
    "write_cookie",
]

READONLY = "readonly"
BOOKIE_ENDPOINT = "bookie"
BOOKIE_PROTOCOL = "bookie-rpc"
_BOOKIE_ID = re.compile(r"[a-zA-Z0-9:._-]+")


class Endpoint(NamedTuple):
    host: str
    port: int
    id: str = BOOKIE_ENDPOINT
    protocol: str = BOOKIE_PROTOCOL
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


class BookieServiceInfo(NamedTuple):
    endpoints: tuple[Endpoint, ...]
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def bookie_endpoint(self) -> Endpoint | None:
        """Return the host and port that serve the bookie protocol."""
        return next((endpoint for endpoint in self.endpoints if endpoint.protocol == BOOKIE_PROTOCOL), None)


def check_bookie_id(bookie_id: str) -> str:
    """Return the id if it is valid for a bookie: letters, digits, `:`, `.`, `_`, `-`; InvalidPathError otherwise."""
    if _BOOKIE_ID.fullmatch(bookie_id) is None or bookie_id in (READONLY, ".", ".."):
        raise InvalidPathError(f"invalid bookie id {bookie_id!r}")
    return bookie_id


def encode_service_info(info: BookieServiceInfo) -> bytes:
    message = BookieServiceInfoFormat(
        endpoints=[
            BookieServiceInfoFormat.Endpoint(
                id=endpoint.id,
                port=endpoint.port,
                host=endpoint.host,
                protocol=endpoint.protocol,
                auth=endpoint.auth,
                extensions=endpoint.extensions,
            )
            for endpoint in info.endpoints
        ],
        properties=dict(info.properties),
    )
    return message.SerializeToString(deterministic=True)


def decode_service_info(bookie_id: str, data: bytes) -> BookieServiceInfo:
    """Decode a service info. MalformedMetadataError. Empty data is an old bookie, whose id is `host:port`."""
    if not data:
        host, _, port = bookie_id.rpartition(":")
        if not host or not port.isdigit():
            raise MalformedMetadataError(f"bookie {bookie_id} does not contain its address")
        return BookieServiceInfo(endpoints=(Endpoint(host=host, port=int(port)),))
    try:
        message = BookieServiceInfoFormat.FromString(data)
    except DecodeError as error:
        raise MalformedMetadataError(f"the service info of bookie {bookie_id} is damaged") from error
    if not message.IsInitialized():
        raise MalformedMetadataError(f"the service info of bookie {bookie_id} is not complete")
    endpoints = tuple(
        Endpoint(
            host=endpoint.host,
            port=endpoint.port,
            id=endpoint.id,
            protocol=endpoint.protocol,
            auth=tuple(endpoint.auth),
            extensions=tuple(endpoint.extensions),
        )
        for endpoint in message.endpoints
    )
    return BookieServiceInfo(endpoints=endpoints, properties=tuple(sorted(message.properties.items())))


def web_url(info: BookieServiceInfo) -> str:
    """Return the URL of a bookie's web port; "" if it has none.

    >>> web_url(BookieServiceInfo((Endpoint("::1", 8000, "httpserver", "http"),)))
    'http://[::1]:8000'
    """
    for endpoint in info.endpoints:
        if endpoint.protocol in ("http", "https"):
            host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
            return f"{endpoint.protocol}://{host}:{endpoint.port}"
    return ""


async def register(
    store: MetadataStore,
    bookie_id: str,
    info: BookieServiceInfo,
    *,
    read_only: bool = False,
    root: str = "/ledgers",
    wait_s: float | None = None,
) -> None:
    """Register a bookie while the store's session lives.

    Call it again in a new session, or to change between writable and read-only.

    Waits while another session, perhaps an earlier one of ours, holds the id: for `wait_s` (BookKeeper's zkTimeout),
    then NodeExistsError; None leaves the deadline to the caller. If `ephemerals.keep` holds the registered path, the
    registration survives lost sessions.
    """
    path = registration_path(bookie_id, read_only=read_only, root=root)
    other = registration_path(bookie_id, read_only=not read_only, root=root)
    await ephemerals.take(store, path, encode_service_info(info), wait_s=wait_s)
    await ephemerals.drop(store, other)


async def keep_registered(
    store: MetadataStore,
    bookie_id: str,
    info: BookieServiceInfo,
    *,
    read_only: bool = False,
    root: str = "/ledgers",
    wait_s: float | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Register, and stay registered until cancelled, also over lost sessions (`ephemerals.keep`).

    To change between writable and read-only, start a new call and then cancel the old one.
    """
    await register(store, bookie_id, info, read_only=read_only, root=root, wait_s=wait_s)
    path = registration_path(bookie_id, read_only=read_only, root=root)
    await ephemerals.keep(store, path, encode_service_info(info), wait_s=wait_s, task_status=task_status)


async def unregister(store: MetadataStore, bookie_id: str, *, root: str = "/ledgers") -> None:
    """Remove the bookie's registration; no effect if there is none. Another session's registration stays."""
    await ephemerals.drop(store, registration_path(bookie_id, root=root))
    await ephemerals.drop(store, registration_path(bookie_id, read_only=True, root=root))


async def available(store: MetadataStore, *, root: str = "/ledgers") -> list[str]:
    """Return the ids of the bookies that accept new entries, sorted.

    NoNodeError if the cluster was never initialised.
    """
    return [name for name in await store.children(paths.join(root, "available")) if name != READONLY]


async def readonly(store: MetadataStore, *, root: str = "/ledgers") -> list[str]:
    """Return the ids of the bookies that only serve reads, sorted."""
    return await store.children(paths.join(root, "available/readonly"))


async def service_info(store: MetadataStore, bookie_id: str, *, root: str = "/ledgers") -> BookieServiceInfo | None:
    """Return the addresses of a bookie, writable or read-only; None if it is not registered."""
    for read_only in (False, True):
        node = await store.get(registration_path(bookie_id, read_only=read_only, root=root))
        if node is not None:
            return decode_service_info(bookie_id, node.value)
    return None


async def read_cookie(store: MetadataStore, bookie_id: str, *, root: str = "/ledgers") -> Versioned[Cookie] | None:
    """Read a bookie's cookie; None if there is none. MalformedMetadataError, UnsupportedLayoutError."""
    node = await store.get(_cookie_path(root, bookie_id))
    return None if node is None else Versioned(decode_cookie(node.value), node.version)


async def write_cookie(store: MetadataStore, cookie: Cookie, version: int | None, *, root: str = "/ledgers") -> int:
    """Store a cookie that is new (`version` None; else NodeExistsError) or has `version` (else BadVersionError); return
    its version.
    """
    path = _cookie_path(root, cookie.bookie_id)
    if version is not None:
        return await store.put(path, encode_cookie(cookie), version)
    await store.create(path, encode_cookie(cookie), make_parents=True)
    return 0


async def delete_cookie(
    store: MetadataStore, bookie_id: str, version: int = ANY_VERSION, *, root: str = "/ledgers"
) -> None:
    """Delete the epoch of a bookie's folders, and then its cookie: who is killed between them finds the cookie and goes
    on. BadVersionError, NoNodeError.
    """
    with suppress(NoNodeError):
        await store.delete(epoch_path(root, bookie_id))
    await store.delete(_cookie_path(root, bookie_id), version)


def epoch_path(root: str, bookie_id: str) -> str:
    """Return the path of the cluster's copy of the epoch of a bookie's folders.

    Below a node of the original: its nukeexistingcluster refuses a cluster with other children of the root.

    >>> epoch_path("/ledgers", "b1:3181")
    '/ledgers/underreplication/quireepochs/b1:3181'
    """
    return paths.join(root, f"underreplication/quireepochs/{bookie_id}")


def registration_path(bookie_id: str, *, read_only: bool = False, root: str = "/ledgers") -> str:
    """Return the path of a registered bookie's ephemeral node."""
    check_bookie_id(bookie_id)
    return f"{root}/available/{READONLY}/{bookie_id}" if read_only else f"{root}/available/{bookie_id}"


def _cookie_path(root: str, bookie_id: str) -> str:
    return f"{root}/cookies/{check_bookie_id(bookie_id)}"
