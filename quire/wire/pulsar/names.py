"""Names of topics, namespaces and subscriptions: parsed once, strictly, and escaped once for use in paths.

    persistent://tenant/namespace/local        the full form; also non-persistent://
    tenant/namespace/local                     short for persistent://tenant/namespace/local
    local                                      short for persistent://public/default/local

Rules. Tenant and namespace: letters, digits and `_ - = : .` of ASCII, not `.` or `..`. The local name is everything
behind the namespace's slash and may contain slashes, so `persistent://a/b/c/d` is the topic `c/d` (the old form with a
cluster between tenant and namespace is not recognised). The short forms have no slash in it. Its parts
between slashes are neither empty nor `.` nor `..`. It must not contain control characters, characters without a UTF-8
form, line and paragraph separators, backslashes, or percent escapes of slash, backslash, dot, percent and control
characters, which a careless decoder could turn into another name. A full name has at most NAME_SIZE_MAX bytes.

A local name that ends in `-partition-N` is a partition. Nothing here is normalised: two names that only look alike are
two topics. Paths use the form of Java's URLEncoder, so that metadata is the same as Pulsar's.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import lru_cache, total_ordering
from typing import Final
from urllib.parse import quote_plus, unquote_plus

from quire.wire.pulsar.errors import (
    InvalidNameError,
    InvalidSubscriptionNameError,
    InvalidTopicNameError,
    UnsupportedTopicNameError,
)

NAME_SIZE_MAX = 4096
"""Largest size in bytes of a full topic name, and of a subscription name, in UTF-8."""

PERSISTENT = "persistent"
NON_PERSISTENT = "non-persistent"
DOMAINS = (PERSISTENT, NON_PERSISTENT)
PUBLIC = "public"
DEFAULT = "default"

ENTITY_PATTERN = r"[A-Za-z0-9_\-=:.]+"
"""Expression for the names of tenants and namespaces; `.` and `..` are none."""
_ENTITY = re.compile(ENTITY_PATTERN)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_PLAIN = re.compile(r"[A-Za-z0-9.\-_*]+")
_ESCAPE = re.compile("%(?:[01][0-9a-f]|2[5ef]|5c|7f)", re.IGNORECASE)
PARTITION_NUMBER = re.compile("0|[1-9][0-9]{0,8}", re.ASCII)
"""Expression for the number of a partition, at the end of its local name."""
_PARTITION = re.compile(rf"-partition-({PARTITION_NUMBER.pattern})\Z", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class NamespaceName:
    """tenant/namespace."""

    tenant: str
    namespace: str

    @classmethod
    def parse(cls, text: str | bytes) -> NamespaceName:
        """Parse `tenant/namespace`; InvalidTopicNameError."""
        text = _text(text, InvalidTopicNameError)
        parts = text.split("/")
        if len(parts) != 2:
            raise InvalidTopicNameError(f"{_shown(text)} is not tenant/namespace")
        return cls(_entity(parts[0], "tenant"), _entity(parts[1], "namespace"))

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}"


@total_ordering
class TopicName:
    """Topic name in its parts; create one with `parse`.

    >>> TopicName.parse("orders").full
    'persistent://public/default/orders'
    >>> TopicName.parse("persistent://a/b/x y-partition-3").managed_ledger_path
    'a/b/persistent/x+y-partition-3'
    """

    __slots__ = ("domain", "full", "namespace", "partition", "tenant")

    def __init__(self, domain: str, tenant: str, namespace: str, local: str, partition: int = -1) -> None:
        self.domain: Final = domain
        self.tenant: Final = tenant
        self.namespace: Final = namespace
        self.partition: Final = partition
        """Number in `-partition-N` at the end of the local name; -1: none."""
        self.full: Final = f"{domain}://{tenant}/{namespace}/{local}"

    @property
    def local(self) -> str:
        """Return the part behind the namespace. Not kept: there may be a hundred thousand topics."""
        return self.full[len(self.domain) + len(self.tenant) + len(self.namespace) + 5 :]

    def __eq__(self, other: object) -> bool:
        return self.full == other.full if isinstance(other, TopicName) else NotImplemented

    def __lt__(self, other: TopicName) -> bool:
        return self._parts < other._parts

    def __hash__(self) -> int:
        return hash(self.full)

    def __repr__(self) -> str:
        return f"TopicName({self.full!r})"

    @property
    def _parts(self) -> tuple[str, str, str, str, int]:
        return self.domain, self.tenant, self.namespace, self.local, self.partition

    @classmethod
    def parse(cls, text: str | bytes) -> TopicName:
        """Parse a name as a client sends it; InvalidTopicNameError."""
        text = _text(text, UnsupportedTopicNameError)
        domain, separator, rest = text.partition("://")
        if not separator:
            domain, rest = PERSISTENT, text
            slashes = rest.count("/")
            if slashes == 0:
                rest = f"{PUBLIC}/{DEFAULT}/{rest}"
            elif slashes != 2:
                raise InvalidTopicNameError(f"{_shown(text)} is neither `topic` nor `tenant/namespace/topic`")
        elif domain not in DOMAINS:
            raise InvalidTopicNameError(f"{_shown(text)} does not begin with persistent:// or non-persistent://")
        parts = rest.split("/", 2)
        if len(parts) != 3:
            raise InvalidTopicNameError(f"{_shown(text)} is not {domain}://tenant/namespace/topic")
        tenant = _entity(parts[0], "tenant")
        namespace = _entity(parts[1], "namespace")
        return cls(sys.intern(domain), tenant, namespace, *_local(parts[2]))

    @classmethod
    def from_managed_ledger_path(cls, path: str) -> TopicName:
        """Return the topic with this `managed_ledger_path`; InvalidTopicNameError."""
        parts = path.split("/")
        if len(parts) != 4 or parts[2] not in DOMAINS:
            raise InvalidTopicNameError(f"{_shown(path)} is not the path of a topic")
        name = cls(
            parts[2], _entity(parts[0], "tenant"), _entity(parts[1], "namespace"), *_local(decode_name(parts[3]))
        )
        if name.managed_ledger_path != path:
            raise InvalidTopicNameError(f"{_shown(path)} is not the path of a topic in its canonical form")
        return name

    @property
    def namespace_name(self) -> NamespaceName:
        return NamespaceName(self.tenant, self.namespace)

    @property
    def namespace_path(self) -> str:
        """tenant/namespace"""
        return f"{self.tenant}/{self.namespace}"

    @property
    def managed_ledger_path(self) -> str:
        """tenant/namespace/domain/local, with the local name escaped: four parts, none of them empty, `.` or `..`."""
        return f"{self.tenant}/{self.namespace}/{self.domain}/{encode_name(self.local)}"

    @property
    def partitioned(self) -> TopicName:
        """The partitioned topic that this is a partition of; this topic if it is not a partition."""
        if self.partition < 0:
            return self
        return TopicName(self.domain, self.tenant, self.namespace, self.local[: self.local.rindex("-partition-")])

    def with_partition(self, index: int) -> TopicName:
        """Return partition `index` of this topic."""
        assert self.partition < 0 <= index, f"partition {index} of {self.full}"
        return TopicName(self.domain, self.tenant, self.namespace, f"{self.local}-partition-{index}", index)

    def __str__(self) -> str:
        return self.full


def check_subscription_name(name: str | bytes) -> str:
    """Return the name if it is valid for a subscription; InvalidSubscriptionNameError.

    Slashes and percent signs are allowed.
    """
    name = _text(name, InvalidSubscriptionNameError)
    if not name.strip():
        raise InvalidSubscriptionNameError("the subscription name is empty")
    if name in (".", ".."):
        raise InvalidSubscriptionNameError(f"{_shown(name)} cannot be the name of a subscription")
    return name


def encode_name(name: str) -> str:
    """Return a name as one component of a path: letters, digits, `.-_*`, `+` for a space, %XX for the rest of its
    UTF-8.
    """
    return name if _PLAIN.fullmatch(name) else quote_plus(name, safe="*").replace("~", "%7E")


def decode_name(component: str) -> str:
    """Return the name that `encode_name` turned into `component`; InvalidNameError if there is none."""
    try:
        return unquote_plus(component, errors="strict")
    except UnicodeDecodeError:
        raise InvalidTopicNameError(f"{_shown(component)} is not an escaped name") from None


def _text(value: str | bytes, error: type[InvalidNameError]) -> str:
    """Return the text of a name after checks that apply to all names.

    Protobuf returns bytes for text that is not UTF-8.
    """
    if not isinstance(value, str):
        raise error("a name that is not UTF-8")
    if len(value) > NAME_SIZE_MAX or (not value.isascii() and len(value.encode(errors="replace")) > NAME_SIZE_MAX):
        raise error(f"a name of more than {NAME_SIZE_MAX} bytes")
    if _CONTROL.search(value):
        raise error(f"{_shown(value)} holds a control character")
    return value


@lru_cache(maxsize=1024)
def _entity(part: str, what: str) -> str:
    if part in (".", "..") or not _ENTITY.fullmatch(part):
        raise InvalidTopicNameError(f"{_shown(part)} cannot be the name of a {what}")
    return sys.intern(part)  # one namespace may have thousands of topics


def _local(local: str) -> tuple[str, int]:
    """Return the local name, checked, and its partition."""
    if not local.strip():
        raise InvalidTopicNameError("the topic name is empty")
    if "\\" in local or _CONTROL.search(local) or _ESCAPE.search(local):
        raise UnsupportedTopicNameError(f"{_shown(local)} holds a backslash, a control character, or an escape of one")
    for part in local.split("/"):
        if part in ("", ".", ".."):
            raise InvalidTopicNameError(f"{_shown(local)} has a part that is empty, `.` or `..`")
    match = _PARTITION.search(local)
    if match is None or match.start() == 0:
        return local, -1
    return local, int(match.group(1))


def _shown(text: str) -> str:
    """Return a name for an error message: quoted, escaped, cut."""
    return ascii(text if len(text) <= 100 else text[:100] + "...")
