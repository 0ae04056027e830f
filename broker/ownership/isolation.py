"""Isolation of namespaces: the brokers that may serve a namespace, by the policies of the cluster (pure).

    /admin/clusters/<cluster>/namespaceIsolationPolicies       JSON, by name of the policy:
        {"namespaces": [regex], "primary": [regex], "secondary": [regex],
         "auto_failover_policy": {"policy_type": "min_available",
                                  "parameters": {"min_limit": "1", "usage_threshold": "80"}}}

A namespace that a policy names is served by the policy's primary brokers; also by secondary ones, and by brokers that
are the primary of no policy, while fewer than `min_limit` primary ones are there. Any other namespace is served by
brokers that are the primary of no policy. Expressions match the whole name of a namespace, and the whole host of a
broker; of several policies that fit, the first by name counts. Loads of machines are not measured, so that a broker is
never above its usage_threshold.

Source: Pulsar's LoadManagerShared.applyNamespacePolicies, NamespaceIsolationPolicies, MinAvailablePolicy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from broker.ownership.values import Json
from quire.service.web.shapes import Anything, Either, Listing, OneText, Record, Text, Whole

Match = Callable[[str], bool]

POLICY_TYPE = "min_available"
POLICIES_MAX = 1000
EXPRESSIONS_MAX = 1000
"""Maximum policies of a cluster, and expressions of each list of one."""
EXPRESSION_LENGTH_MAX = 1000
_EXPRESSIONS = Listing(Text())
_LIMIT = Either((Text(), Whole(0, 10**9 - 1)))
_FAILOVER = Record(
    {
        "policy_type": OneText((POLICY_TYPE,)),
        "parameters": Record({"min_limit": _LIMIT, "usage_threshold": Anything()}, needed=("min_limit",)),
    },
    needed=("policy_type", "parameters"),
)
SHAPE = Record(
    {
        "namespaces": _EXPRESSIONS,
        "primary": _EXPRESSIONS,
        "secondary": _EXPRESSIONS,
        "auto_failover_policy": _FAILOVER,
    },
    needed=("auto_failover_policy",),
)


class IsolationError(ValueError):
    """An isolation policy that cannot be obeyed; the text says why."""


@dataclass(frozen=True, slots=True)
class IsolationPolicy:
    """One policy."""

    namespaces: tuple[Match, ...]
    primary: tuple[Match, ...]
    secondary: tuple[Match, ...]
    min_limit: int


def isolation_policy(data: object) -> IsolationPolicy:
    """Return the policy of a JSON object. Raises IsolationError.

    >>> policy = isolation_policy({"namespaces": ["a/.*"], "primary": ["one"], "secondary": [],
    ...     "auto_failover_policy": {"policy_type": "min_available", "parameters": {"min_limit": "2"}}})
    >>> policy.min_limit, [fits("a/b") for fits in policy.namespaces]
    (2, [True])
    """
    given = SHAPE.check(data, "an isolation policy", IsolationError)
    text = str(given["auto_failover_policy"]["parameters"]["min_limit"])
    if not text.isdecimal() or len(text) > 9:
        raise IsolationError("auto_failover_policy.parameters.min_limit must be a number of brokers")
    namespaces, primary, secondary = (_expressions(given, name) for name in ("namespaces", "primary", "secondary"))
    if not namespaces or not primary:
        raise IsolationError("a policy needs namespaces and primary brokers")
    return IsolationPolicy(namespaces, primary, secondary, int(text))


def _expressions(data: Mapping[str, Any], name: str) -> tuple[Match, ...]:
    given = data.get(name, ())
    if len(given) > EXPRESSIONS_MAX:
        raise IsolationError(f"{name} must be a list of at most {EXPRESSIONS_MAX} expressions")
    return tuple(map(_expression, given))


def _expression(text: object) -> Match:
    import re2  # only clusters with such a policy need it

    if not isinstance(text, str) or not 0 < len(text) <= EXPRESSION_LENGTH_MAX:
        raise IsolationError(f"an expression is a text of 1 to {EXPRESSION_LENGTH_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        fits = re2.compile(text, options).fullmatch
    except re2.error as error:
        raise IsolationError(f"{text[:100]!a} is no regular expression") from error
    return lambda name: fits(name) is not None


class Isolation:
    """The policies of a cluster."""

    def __init__(self, policies: Iterable[IsolationPolicy] = ()) -> None:
        """Take the policies in the order of their names."""
        self._policies = tuple(policies)

    @classmethod
    def of(cls, stored: Json) -> Isolation:
        """Return the policies of the node's JSON. Raises IsolationError."""
        found = []
        for name in sorted(stored):
            try:
                found.append(isolation_policy(stored[name]))
            except IsolationError as error:
                raise IsolationError(f"isolation policy {name[:100]!a}: {error}") from error
        return cls(found)

    def __bool__(self) -> bool:
        return bool(self._policies)

    def namespaces_of(self, broker_id: str, patterns: Mapping[str, object]) -> tuple[list[str], bool]:
        """Return the expressions of the namespaces for which a broker is the primary, and whether there are any.
        `patterns`: the node's JSON."""
        found: list[str] = []
        for name, policy in zip(sorted(patterns), self._policies, strict=True):
            data = patterns[name]
            if isinstance(data, dict) and _fits(policy.primary, host_of(broker_id)):
                found += data["namespaces"]
        return found, bool(found)

    def allowed(self, namespace: str, brokers: Collection[str]) -> set[str]:
        """Return those of the brokers, given by their ids (host:port), that may serve a namespace."""
        if not self._policies:
            return set(brokers)
        shared = {each for each in brokers if not any(_fits(one.primary, host_of(each)) for one in self._policies)}
        policy = next((each for each in self._policies if _fits(each.namespaces, namespace)), None)
        if policy is None:
            return shared
        found = {each for each in brokers if _fits(policy.primary, host_of(each))}
        if len(found) < policy.min_limit:
            found |= shared | {each for each in brokers if _fits(policy.secondary, host_of(each))}
        return found


def host_of(broker_id: str) -> str:
    """Return the host of a broker's id.

    >>> host_of("broker-1:8080"), host_of("[::1]:8080")
    ('broker-1', '[::1]')
    """
    return broker_id.rpartition(":")[0]


def _fits(expressions: Iterable[Match], name: str) -> bool:
    return any(fits(name) for fits in expressions)
