"""REST requests: ledgers of a topic, positions by time, subscriptions, deduplication, offloading. Blocking.

Used by the process that plans, by the tasks of an exactly-once sink, and by the pipelines. Requests are
tried again while the cause is passing, up to a deadline.
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from quire.client.authentication import Credentials, CredentialsError
from quire.client.message_id import MessageId
from quire.spark.errors import SourceUnavailableError, SparkSourceError
from quire.spark.topics import partitioned_name
from quire.wire.pulsar.names import TopicName
from quire.world.backoff import Backoff
from quire.world.real_tls import TlsFiles
from quire.world.tls_options import TlsOptions

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

ATTEMPT_TIMEOUT_S = 10.0
BACKOFF_MIN_S = 0.05
BACKOFF_MAX_S = 2.0
PARALLEL_MAX = 8
TOGETHER_MIN = 16
"""Partitions of one topic from which on the brokers are asked for all of them at once."""
_OFFLOAD = "quireOffload"
_PASSING_STATUS = frozenset((429, 500, 502, 503, 504))
"""Statuses to retry: Pulsar's brokers answer 500 and 503 while a topic moves, and 307 to the owner."""


class TopicMissingError(SparkSourceError):
    """The broker has no topic of that name. Permanent, unless the topic is created."""


class AdminRefusedError(SparkSourceError):
    """A broker refused a request. Permanent; the text has its reason."""


class Admin:
    """One HTTP client, made at the first request. Not pickled: each process makes its own."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 60.0,
        tls: TlsOptions | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`tls`: files and rules for an https URL; None: the authorities of the system are trusted."""
        self._url = url.rstrip("/")
        self._tls = tls or TlsOptions()
        self._timeout_s = timeout_s
        self._credentials = credentials
        self._client: httpx2.Client | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._rng = random.Random()

    def close(self) -> None:
        """Close the connections; the next request makes new ones."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    def internal_stats(self, topic: str, *, metadata: bool = False) -> dict[str, Any]:
        """Return `GET .../internalStats` of one topic or partition: ledgers, last confirmed entry, cursors.

        `metadata`: also the metadata of each ledger. Raises TopicMissingError."""
        resource = "internalStats?metadata=true" if metadata else "internalStats"
        found: dict[str, Any] = self._ask("GET", topic, resource).json()
        return found

    def many_internal_stats(self, topics: Sequence[str], *, metadata: bool = False) -> list[dict[str, Any] | None]:
        """Return the internal stats of several, in their order, some concurrently; None for a missing topic."""
        found: dict[str, dict[str, Any] | None] = {} if metadata else dict(self._of_many_partitions(topics))
        left = [topic for topic in topics if topic not in found]
        found |= zip(left, self._map(partial(self._stats_or_none, metadata=metadata), left), strict=True)
        return [found[topic] for topic in topics]

    def partitions(self, topic: str) -> int:
        """Return the number of partitions; 0: not partitioned, or missing."""
        response = self._ask("GET", topic, "partitions", fine=(404,))
        return 0 if response.status_code == 404 else int(response.json()["partitions"])

    def message_id_at(self, topic: str, epoch_ms: int) -> MessageId:
        """Return the first entry published at or after `epoch_ms`, or else the position of the next one."""
        found = self._ask("GET", topic, f"messageid/{epoch_ms}").json()
        return MessageId(int(found["ledgerId"]), int(found["entryId"]))

    def is_of_transaction(self, topic: str, ledger_id: int, entry_id: int) -> bool:
        """Return whether an entry is a message of a transaction or a broker's mark; False if there is none.

        Raises AdminRefusedError."""
        response = self._ask("GET", topic, f"ledger/{ledger_id}/entry/{entry_id}", fine=(404,))
        return response.status_code != 404 and any(
            f"X-Pulsar-{name}" in response.headers for name in ("marker-type", "txnid-most-bits")
        )

    def subscriptions(self, topic: str) -> list[str]:
        """Return the names of the topic's durable subscriptions."""
        return [str(name) for name in self._ask("GET", topic, "subscriptions").json()]

    def create_subscription(self, topic: str, name: str, position: MessageId) -> bool:
        """Create a durable subscription whose next entry is the one at `position`; return False if one of that name
        exists."""
        body = {"ledgerId": position.ledger_id, "entryId": position.entry_id, "partitionIndex": -1}
        response = self._ask("PUT", topic, f"subscription/{_component(name)}", json=body, fine=(409,))
        return response.status_code != 409

    def delete_subscription(self, topic: str, name: str, *, force: bool = False) -> bool:
        """Delete a subscription and the data that only it retains; return False if there is none of that name."""
        query = "?force=true" if force else ""
        response = self._ask("DELETE", topic, f"subscription/{_component(name)}{query}", fine=(404,))
        return response.status_code != 404

    def deduplication(self, topic: str) -> bool:
        """Return whether the brokers deduplicate what is sent to a topic, by its policies or their own setting.

        Raises TopicMissingError, AdminRefusedError."""
        response = self._ask("GET", topic, "deduplicationEnabled?applied=true")
        return response.status_code != 204 and response.json() is True

    def runtime_configuration(self) -> dict[str, str]:
        """Return the settings of a broker. Raises AdminRefusedError: this role may not read them."""
        found: dict[str, str] = self._ask_url("GET", "brokers/configuration/runtime", "a broker").json()
        return found

    def entries(self, topic: str, ledger_id: int, entry_id: int) -> bytes:
        """Return entries as stored, from one on: a run of (ledger id: 8, entry id: 8, size: 4, entry); none at the
        end."""
        found: bytes = self._ask("GET", topic, f"quireEntries?ledger={ledger_id}&entry={entry_id}").content
        return found

    def offloading(self, topic: str) -> list[dict[str, Any]]:
        """Return the closed ledgers of a topic, and how far each is offloaded.

        Raises TopicMissingError, and AdminRefusedError if the brokers are not Quire's."""
        response = self._ask("GET", topic, _OFFLOAD, fine=(404,))
        if response.status_code == 404:
            self.internal_stats(topic)  # raises, if the topic is what is missing
            raise AdminRefusedError(
                f"the brokers at {self._url} have no resource {_OFFLOAD}: only those of Quire offload this way; "
                "for Apache Pulsar's, use pulsar-admin topics offload, or quire pipeline archive"
            )
        found: list[dict[str, Any]] = response.json()["ledgers"]
        return found

    def prepare_offload(self, topic: str, ledger_id: int, uid: str, *, instead: str, driver: str) -> bool:
        """Store the uid of a new object; return False if the ledger has another state than the caller found."""
        body = {"ledger": ledger_id, "uid": uid, "instead": instead, "driver": driver}
        return self._ask("PUT", topic, _OFFLOAD, json=body, fine=(409,)).status_code != 409

    def complete_offload(self, topic: str, ledger_id: int, uid: str) -> bool:
        """Store that an object is complete; return False if the ledger has another uid, or is gone."""
        body = {"ledger": ledger_id, "uid": uid}
        return self._ask("POST", topic, _OFFLOAD, json=body, fine=(409,)).status_code != 409

    def release_offload(self, topic: str, ledger_id: int, uid: str) -> bool:
        """Store that a ledger is not offloaded; return False if it has another uid, or its object is the only copy."""
        resource = f"{_OFFLOAD}?ledger={ledger_id}&uid={uid}"
        return self._ask("DELETE", topic, resource, fine=(409,)).status_code != 409

    def _stats_or_none(self, topic: str, *, metadata: bool) -> dict[str, Any] | None:
        try:
            return self.internal_stats(topic, metadata=metadata)
        except TopicMissingError:
            return None

    def _of_many_partitions(self, topics: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the internal stats of topics that are many partitions of one, from one request for all of them.

        A topic for which it fails is left out, and is asked for each partition then: so one that is missing, or moves,
        counts alone."""
        members: dict[str, set[str]] = {}
        for topic in topics:
            members.setdefault(partitioned_name(topic), set()).add(topic)
        found: dict[str, dict[str, Any]] = {}
        for name, wanted in members.items():
            if len(wanted) >= TOGETHER_MIN:
                stats = self._try(f"{topic_path(name)}/partitioned-internalStats").get("partitions")
                if isinstance(stats, dict):
                    found |= {each: stats[each] for each in wanted if isinstance(stats.get(each), dict)}
        return found

    def _try(self, path: str) -> dict[str, Any]:
        """Return the answer to one attempt of a request; empty: it failed."""
        import httpx2

        try:
            response = self._http().get(f"{self._url}/admin/v2/{path}", timeout=self._timeout_s)
            found = response.json() if response.is_success else None
        except (CredentialsError, httpx2.InvalidURL, httpx2.HTTPError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _map(self, ask: Callable[[str], T], topics: Sequence[str]) -> list[T]:
        if len(topics) < 2:
            return [ask(topic) for topic in topics]
        self._http()  # made once, before several threads need it
        if self._pool is None:
            self._pool = ThreadPoolExecutor(PARALLEL_MAX, thread_name_prefix="quire-admin")
        return list(self._pool.map(ask, topics))

    def _ask(
        self, method: str, topic: str, resource: str, *, json: object = None, fine: tuple[int, ...] = ()
    ) -> httpx2.Response:
        """Send a request about a topic. `fine`: statuses beside 2xx that are valid answers."""
        path = f"{topic_path(topic)}/{resource}"
        return self._ask_url(method, path, f"topic {topic}", resource=resource, json=json, fine=fine)

    def _ask_url(
        self,
        method: str,
        path: str,
        whose: str,
        *,
        resource: str = "",
        json: object = None,
        fine: tuple[int, ...] = (),
    ) -> httpx2.Response:
        """Send a request. `whose`, `resource`: names for errors."""
        import httpx2

        url = f"{self._url}/admin/v2/{path}"
        what = f"{method} {resource or path} of {whose.removeprefix('topic ')}"
        deadline = time.monotonic() + self._timeout_s
        backoff = Backoff(BACKOFF_MIN_S, BACKOFF_MAX_S, self._rng)
        while True:
            try:
                response = self._http().request(method, url, json=json)
            except CredentialsError as error:
                raise AdminRefusedError(f"option authTokenFile or authPasswordFile: {error}") from None
            except httpx2.InvalidURL as error:
                raise AdminRefusedError(f"admin.url {self._url!r} is not a URL: {error}") from None
            except httpx2.HTTPError as error:
                cause = f"{type(error).__name__}: {error}"
            else:
                status = response.status_code
                if status in fine or 200 <= status < 300:
                    return response
                reason = _reason(response)
                if status == 404:
                    raise TopicMissingError(f"{whose} does not exist ({method} {resource or path}: {reason})")
                if status not in _PASSING_STATUS:
                    raise AdminRefusedError(f"{what} was refused with {status}: {reason}")
                cause = f"{status} {reason}"
            pause_s = backoff.next()
            if time.monotonic() + pause_s > deadline:
                raise SourceUnavailableError(
                    f"{what} at {self._url} failed for {self._timeout_s:g} s (option "
                    "operationTimeoutMs), last"
                    f" with {cause}; option admin.url says where the brokers' REST interface is"
                )
            time.sleep(pause_s)

    def _http(self) -> httpx2.Client:
        if self._client is None:
            import httpx2

            # A client without https needs no authorities, which are slow to load.
            verify: ssl.SSLContext | bool = False
            if self._url.startswith("https://"):
                try:
                    verify = TlsFiles(self._tls, server_side=False).context
                except (OSError, ValueError) as error:
                    raise AdminRefusedError(f"{self._url} cannot be asked over TLS: {error}") from error
            self._client = httpx2.Client(
                verify=verify,
                timeout=min(ATTEMPT_TIMEOUT_S, self._timeout_s),
                follow_redirects=True,
                trust_env=False,
                limits=httpx2.Limits(max_keepalive_connections=PARALLEL_MAX, keepalive_expiry=20.0),
                event_hooks={"request": [self._authenticate]},
            )
        return self._client

    def _authenticate(self, request: httpx2.Request) -> None:
        """Add credentials to a request, also to one that another broker was named for: redirects lose them."""
        if self._credentials is not None:
            request.headers.update(self._credentials.headers())


def topic_path(topic: str) -> str:
    """Return a topic as part of a resource's path: domain/tenant/namespace/local, the local name escaped as one part.

    >>> topic_path("persistent://public/default/a b/c")
    'persistent/public/default/a%20b%2Fc'
    """
    name = TopicName.parse(topic)
    return f"{name.domain}/{name.tenant}/{name.namespace}/{_component(name.local)}"


def _component(text: str) -> str:
    return quote(text, safe="")


def _reason(response: httpx2.Response) -> str:
    """Return the reason in a broker's answer. Pulsar answers {"reason": ...}."""
    try:
        found = response.json()
    except ValueError:
        return " ".join(response.text.split())[:200] or response.reason_phrase
    reason = found.get("reason") if isinstance(found, dict) else None
    return str(reason) if reason else response.reason_phrase
