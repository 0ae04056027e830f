"""One request of the admin REST: names from its path, flags from its query, its body as JSON. Nothing is trusted."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from broker.admin.administration import Administration
from broker.admin.errors import (
    BodyTooLargeError,
    InvalidNameInPathError,
    MalformedRequestError,
    MediaTypeError,
    NotServedError,
)
from broker.admin.other_brokers import OtherBrokers
from broker.admin.raw_paths import raw_path, unescape
from broker.ownership.local import Owning
from broker.ownership.namespaces import Namespaces
from broker.topics.policies import TopicPolicies
from quire.metadata.store import MetadataStore
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import NamespaceName, TopicName, check_subscription_name

BODY_BYTES_MAX = 64 << 10
"""No body of this API needs more; so many bytes are kept at most while one is read."""
REQUESTS_MAX = 200
"""Requests worked on at once; one more is told to come again."""
PATH_SHOWN_MAX = 300
"""Characters of a path in the log, and in what is answered."""
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterService:
    """What the resources of a cluster work on: tenants, namespaces, brokers, bookies."""

    metadata: MetadataStore
    namespaces: Namespaces
    policies: TopicPolicies
    ownership: Owning
    cluster_name: str
    ledgers_root: str = "/ledgers"
    broker_id: str = ""
    """Of this broker; empty where there is one."""
    others: OtherBrokers | None = None
    """None: there are none."""
    force_delete_namespace: bool = False
    force_delete_tenant: bool = False
    metadata_url: str = ""
    ensemble_max: int = 0
    """Bookies that there can ever be, where that is known: a ledger on more could not be made. 0: it is not."""


@dataclass(slots=True, kw_only=True)
class Service:
    """What the resources work on."""

    administration: Administration
    client_partitions: Callable[[TopicName], Awaitable[int]]
    """How many partitions a client is to see, which may make the topic. BrokerError."""
    broker_url: Callable[[], str]
    web_url: Callable[[], str]
    """Both as clients use them; asked for each time, since a server may know its port only when it listens."""
    cluster: ClusterService | None = None
    """None: no such resources, and every topic is this broker's."""
    deadline_s: float
    """No request is worked on for longer."""
    requests_max: int = REQUESTS_MAX
    under_way: int = 0
    """Requests being worked on now."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request on its way through a resource."""

    service: Service
    request: Request
    parts: Mapping[str, str]
    """The parameters of the path, still escaped."""

    @property
    def administration(self) -> Administration:
        return self.service.administration

    @property
    def cluster(self) -> ClusterService:
        """NotServedError."""
        if self.service.cluster is None:
            raise NotServedError("this server has no cluster")
        return self.service.cluster

    @property
    def line(self) -> str:
        """Method and path as they came, cut: for the log, and for who asked."""
        path = raw_path(self.request.scope)
        return f"{self.request.method} {path if len(path) <= PATH_SHOWN_MAX else path[:PATH_SHOWN_MAX] + '...'}"

    # The path

    def part(self, name: str) -> str:
        """A parameter of the path, unescaped. InvalidNameInPathError."""
        return unescape(self.parts[name])

    def tenant(self) -> str:
        """InvalidNameInPathError."""
        return self._entity("tenant")

    def cluster_name(self) -> str:
        """InvalidNameInPathError."""
        return self._entity("cluster")

    def _entity(self, what: str) -> str:
        name = self.part(what)
        try:
            NamespaceName.parse(f"{name}/x")
        except InvalidNameError as error:
            raise InvalidNameInPathError(f"{name[:100]!a} cannot be the name of a {what}") from error
        return name

    def namespace(self) -> NamespaceName:
        """InvalidNameInPathError."""
        try:
            return NamespaceName.parse(f"{self.part('tenant')}/{self.part('namespace')}")
        except InvalidNameError as error:
            raise InvalidNameInPathError(str(error)) from error

    def topic(self) -> TopicName:
        """InvalidNameInPathError; NotServedError if the path says that it is not persistent."""
        namespace = self.namespace()
        domain = self.parts.get("domain", "persistent")
        if domain == "non-persistent":
            raise NotServedError("only persistent topics are served")
        try:
            return TopicName.parse(f"{domain}://{namespace}/{self.part('topic')}")
        except InvalidNameError as error:
            raise InvalidNameInPathError(str(error)) from error

    def subscription(self) -> str:
        """InvalidNameInPathError."""
        try:
            return check_subscription_name(self.part("subscription"))
        except InvalidNameError as error:
            raise InvalidNameInPathError(str(error)) from error

    # The query

    def flag(self, name: str) -> bool:
        """`true` or `false` in any case, false if it is not there. MalformedRequestError for anything else: what deletes
        must not guess."""
        text = self.request.query_params.get(name, "false").lower()
        if text not in ("true", "false"):
            raise MalformedRequestError(f"{name} must be true or false, not {text[:100]!a}")
        return text == "true"

    # The body

    async def json(self) -> Any:
        """The body, decoded; None if there is none. MediaTypeError, BodyTooLargeError, MalformedRequestError."""
        body = await self._body()
        if not body:
            return None
        kind = self.request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind and kind != "application/json" and not kind.endswith("+json"):
            raise MediaTypeError(f"the body must be JSON (Content-Type: application/json), not {kind[:100]!a}")
        try:
            value = json.loads(body, parse_constant=_refuse_constant)
            if b"\\u" in body:
                # Half of a pair that stands for one character: legal JSON, and no text that could be stored or answered.
                json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise MalformedRequestError("the body has text with a lone surrogate, which is no Unicode") from error
        except (ValueError, RecursionError) as error:
            raise MalformedRequestError(f"the body is no JSON: {error}") from error
        return value

    async def _body(self) -> bytes:
        """At most BODY_BYTES_MAX. A declared length above it is refused before anything is read."""
        declared = self.request.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared[:20]) > BODY_BYTES_MAX:
            raise BodyTooLargeError(f"a body of {declared[:20]} bytes is too large; at most {BODY_BYTES_MAX}")
        body = bytearray()
        async with aclosing(self.request.stream()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > BODY_BYTES_MAX:
                    raise BodyTooLargeError(f"the body is too large; at most {BODY_BYTES_MAX} bytes")
        return bytes(body)


def integer(value: object, what: str, *, minimum: int, maximum: int) -> int:
    """A number out of a body; MalformedRequestError if it is none, or cannot be (bounds are inclusive)."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedRequestError(f"{what} must be an integer, not {str(value)[:100]!a}")
    if not minimum <= value <= maximum:
        raise MalformedRequestError(f"{what} must be between {minimum} and {maximum}, not {str(value)[:100]!a}")
    return value


def string_map(value: object, what: str) -> dict[str, str]:
    """Properties out of a body; None is none. MalformedRequestError."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise MalformedRequestError(f"{what} must be an object with strings")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
