"""One request of the admin REST: names from its path, flags from its query, its body as JSON. All input is checked."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from math import isfinite
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
from broker.admin.openapi.parameters import INT32_MAX, INT64_MAX
from broker.admin.other_brokers import OtherBrokers
from broker.admin.raw_paths import raw_path, unescape
from broker.admin.top.bookies import SeenBookie
from broker.dynamic.configuration import DynamicConfiguration
from broker.ownership.local import Owning
from broker.ownership.namespaces import Namespaces
from broker.security.authorization.authorizer import Authorizer
from broker.security.principal import Principal
from broker.topics.policies import TopicPolicies
from broker.topics.topic import Topic
from quire.metadata.store import MetadataStore
from quire.service.web.parameters import Flag, OneOf, Parameter, PathNumber, Texts, WholeNumber
from quire.service.web.shapes import ByName, Text
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import NON_PERSISTENT, PERSISTENT, NamespaceName, TopicName, check_subscription_name

BODY_BYTES_MAX = 64 << 10
"""Maximum bytes of a body, unless its resource allows more; at most this much is kept while one is read."""
REQUESTS_MAX = 200
"""Concurrent requests; the next one is refused and may be retried."""
PATH_SHOWN_MAX = 300
"""Characters of a path shown in the log and in answers."""
BARE_NAME = re.compile(rb"[A-Za-z0-9_.-]+")
"""Text of a body that is a name, and is not JSON."""
PROPERTIES = ByName(Text())
"""Body or field with properties."""
__all__ = ["INT32_MAX", "INT64_MAX", "AdminCall", "ClusterService", "Service"]


async def _no_bookies() -> Sequence[SeenBookie]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterService:
    """Parts of a cluster that the resources use: tenants, namespaces, brokers, bookies."""

    metadata: MetadataStore
    namespaces: Namespaces
    policies: TopicPolicies
    ownership: Owning
    cluster_name: str
    ledgers_root: str = "/ledgers"
    broker_id: str = ""
    """Ownership of this broker; empty where there is one broker."""
    others: OtherBrokers | None = None
    """None: there are no registered brokers."""
    force_delete_namespace: Callable[[], bool] = bool
    force_delete_tenant: Callable[[], bool] = bool
    """Return whether tenants and namespaces may be deleted with what is in them."""
    metadata_url: str = ""
    loaded: Callable[[], Iterable[Topic]] = tuple
    """Return the persistent topics that are loaded."""
    started_ms: int = 0
    """Time at which the broker started."""
    wall_ms: Callable[[], int] = int
    """Return the time."""
    configuration: DynamicConfiguration | None = None
    """Values that hold while brokers run; None: there are none."""
    bookies: Callable[[], Awaitable[Sequence[SeenBookie]]] = _no_bookies
    """Return the bookies as this broker sees them."""
    ensemble_max: int = 0
    """Maximum number of bookies there can be, if known: a ledger on more could not be created. 0: unknown."""


@dataclass(slots=True, kw_only=True)
class Service:
    """Parts of a server that the resources use."""

    administration: Administration
    client_partitions: Callable[[TopicName], Awaitable[int]]
    """Return the number of partitions a client is to see, which may create the topic. Raises BrokerError."""
    broker_url: Callable[[], str]
    web_url: Callable[[], str]
    """First URLs; see `broker.ownership.urls`. Asked for each time, since a server may know its port only when it
    listens."""
    broker_url_tls: Callable[[], str] = str
    web_url_tls: Callable[[], str] = str
    """URLs with TLS, "" if there are none."""
    cluster: ClusterService | None = None
    """None: the resources of a cluster are not served, and this broker serves every topic."""
    authorizer: Authorizer | None = None
    """None: every request is permitted."""
    deadline_s: float
    """Deadline of each request."""
    requests_max: int = REQUESTS_MAX
    under_way: int = 0
    """Requests under way."""


@dataclass(frozen=True, slots=True)
class AdminCall:
    """A request and its parsed parts."""

    service: Service
    request: Request
    parts: Mapping[str, str]
    """Parameters of the path, still escaped."""

    @property
    def administration(self) -> Administration:
        return self.service.administration

    @property
    def is_tls(self) -> bool:
        """Return whether the request came over TLS."""
        return self.request.url.scheme == "https"

    @property
    def cluster(self) -> ClusterService:
        """Return the cluster. Raises NotServedError if there is none."""
        if self.service.cluster is None:
            raise NotServedError("this server has no cluster")
        return self.service.cluster

    @property
    def broker_id(self) -> str:
        """Return the id of this broker: host and port of its web port without TLS."""
        cluster = self.service.cluster
        return (cluster is not None and cluster.broker_id) or self.service.web_url().partition("://")[2]

    @property
    def principal(self) -> Principal | None:
        """Return the roles that the request acts with; None with authentication off."""
        principal: Principal | None = self.request.scope.get("principal")
        return principal

    @property
    def line(self) -> str:
        """Return method and path as received, shortened, for the log and for answers."""
        path = raw_path(self.request.scope)
        return f"{self.request.method} {path if len(path) <= PATH_SHOWN_MAX else path[:PATH_SHOWN_MAX] + '...'}"

    # The path

    def part(self, name: str) -> str:
        """Return a parameter of the path, unescaped. Raises InvalidNameInPathError."""
        return unescape(self.parts[name])

    def number(self, parameter: PathNumber) -> int:
        """Return a number of the path. Raises InvalidNameInPathError, ParameterError."""
        return parameter.parse(self.part(parameter.name))

    def tenant(self) -> str:
        """Return the tenant of the path. Raises InvalidNameInPathError."""
        return self._entity("tenant")

    def cluster_name(self) -> str:
        """Return the cluster of the path. Raises InvalidNameInPathError."""
        return self._entity("cluster")

    def _entity(self, what: str) -> str:
        name = self.part(what)
        try:
            NamespaceName.parse(f"{name}/x")
        except InvalidNameError as error:
            raise InvalidNameInPathError(f"{name[:100]!a} cannot be the name of a {what}") from error
        return name

    def namespace(self) -> NamespaceName:
        """Return the namespace of the path. Raises InvalidNameInPathError."""
        try:
            return NamespaceName.parse(f"{self.part('tenant')}/{self.part('namespace')}")
        except InvalidNameError as error:
            raise InvalidNameInPathError(str(error)) from error

    def topic(self) -> TopicName:
        """Return the topic of the path. Raises InvalidNameInPathError."""
        namespace = self.namespace()
        is_direct = raw_path(self.request.scope).startswith(f"/admin/v2/{NON_PERSISTENT}/")
        domain = self.parts.get("domain") or (NON_PERSISTENT if is_direct else PERSISTENT)
        try:
            return TopicName.parse(f"{domain}://{namespace}/{self.part('topic')}")
        except InvalidNameError as error:
            raise InvalidNameInPathError(str(error)) from error

    def subscription(self) -> str:
        """Return the subscription of the path. Raises InvalidNameInPathError."""
        try:
            return check_subscription_name(self.part("subscription"))
        except InvalidNameError as error:
            raise InvalidNameInPathError(str(error)) from error

    # The query

    def flag(self, flag: Flag) -> bool:
        """Return a flag. Raises ParameterError."""
        return flag.of(self.request.query_params)

    def choice(self, parameter: OneOf) -> str:
        """Return one of some texts. Raises ParameterError."""
        return parameter.of(self.request.query_params)

    def whole(self, parameter: WholeNumber) -> int | None:
        """Return a number; None if it is not given. Raises ParameterError."""
        return parameter.of(self.request.query_params)

    def given(self, parameter: Parameter) -> str | None:
        """Return a text as it was given; None if it was not."""
        return parameter.text(self.request.query_params)

    def texts(self, parameter: Texts) -> list[str]:
        """Return all texts of a parameter."""
        return parameter.all(self.request.query_params)

    # The body

    async def octets(self, bytes_max: int) -> bytes:
        """Return a body of any bytes. Raises BodyTooLargeError."""
        return await self._body(bytes_max)

    async def json(self, bytes_max: int = BODY_BYTES_MAX) -> Any:
        """Return the decoded body of at most `bytes_max`; None if there is none.

        Raises MediaTypeError, BodyTooLargeError, MalformedRequestError."""
        return self._decoded(await self._body(bytes_max))

    def _decoded(self, body: bytes) -> Any:
        if not body:
            return None
        kind = self.request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind and kind != "application/json" and not kind.endswith("+json"):
            raise MediaTypeError(f"the body must be JSON (Content-Type: application/json), not {kind[:100]!a}")
        try:
            value = json.loads(body, parse_constant=_refuse_constant, parse_float=_finite)
            if b"\\u" in body:
                # A lone half of a surrogate pair: legal JSON, but text that cannot be stored or answered.
                json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise MalformedRequestError("the body contains a lone surrogate, which is not valid Unicode") from error
        except (ValueError, RecursionError) as error:
            raise MalformedRequestError(f"the body is not JSON: {error}") from error
        return value

    async def name(self) -> Any:
        """Return a body that is a name: a JSON string, or bare text, as Pulsar's clients send it though they declare it
        JSON. Other JSON is returned as it is. Raises as `json`."""
        body = await self._body(BODY_BYTES_MAX)
        if BARE_NAME.fullmatch(body) and body != b"null":
            return body.decode()
        return self._decoded(body)

    async def _body(self, bytes_max: int) -> bytes:
        """Read at most `bytes_max`. A larger declared length is refused before anything is read."""
        declared = self.request.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared[:20]) > bytes_max:
            raise BodyTooLargeError(f"a body of {declared[:20]} bytes is too large; at most {bytes_max}")
        body = bytearray()
        async with aclosing(self.request.stream()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > bytes_max:
                    raise BodyTooLargeError(f"the body is too large; at most {bytes_max} bytes")
        return bytes(body)


def string_map(value: object, what: str) -> dict[str, str]:
    """Return the properties of a body; {} for None. Raises MalformedRequestError."""
    return {} if value is None else PROPERTIES.check(value, what, MalformedRequestError)


def _finite(text: str) -> float:
    """Return a number with a fraction or an exponent. Raises ValueError for one that is too large: it would become
    Infinity, which no JSON can answer."""
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text[:40]} is out of range")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
