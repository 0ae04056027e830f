"""Verbs of the admin REST (pure): what the command line accepts, and the requests that it stands for.

A verb is a row of a table (`quire.cli.admin.table`): a request, written as `METHOD path?query` with parameters in
braces, its parameters, and a function that makes its body. The few verbs that need several requests have a plan: a
generator that yields requests, is sent their answers, and returns the answer of the verb.

Paths begin under /admin/v2/, unless they begin with a slash. `{topic}` is `persistent/tenant/namespace/topic`, and
`{topic.path}` the same without the domain. A parameter of the query that was not given is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from quire.cli.admin.errors import CommandLineError
from quire.cli.admin.values import FLAG, PAIRS, Json, ValueKind, pairs
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import NamespaceName, TopicName

ROOT: Final = "/admin/v2/"
JSON_TYPE: Final = "application/json"
OCTETS_TYPE: Final = "application/octet-stream"
Given = Mapping[str, Any]
"""Values of a command line by the names of the parameters; None: not given. `now_ms` is the time."""
_FIELD: Final = re.compile(r"\{([a-z_]+)(\.path)?\}")


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""Body of a request without one."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `path` has the query; `body` is JSON, bytes, or ABSENT."""

    method: str
    path: str
    body: Json = ABSENT
    content_type: str = JSON_TYPE

    @property
    def changes(self) -> bool:
        return self.method != "GET"


@dataclass(frozen=True, slots=True)
class Message:
    """Answer of a request that reads a message: its metadata, and its payload."""

    headers: Mapping[str, str]
    payload: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """Answer of a plan with an exit code of its own."""

    answer: Any
    code: int


Plan = Generator[Request, Any, Any]


@dataclass(frozen=True, slots=True)
class VerbParameter:
    """Argument or option of a verb. An argument has no flags."""

    name: str
    kind: ValueKind
    help: str
    flags: tuple[str, ...] = ()
    required: bool = False
    default: str | None = None
    """Default as on the command line. None: the value is None (False for a flag)."""


def argument(name: str, kind: ValueKind, help: str, *, required: bool = True) -> VerbParameter:
    """Return an argument."""
    return VerbParameter(name, kind, help, required=required)


def option(
    *flags: str, kind: ValueKind, help: str, required: bool = False, default: str | None = None
) -> VerbParameter:
    """Return an option. Its name is that of the first flag."""
    return VerbParameter(flags[0].lstrip("-").replace("-", "_"), kind, help, flags, required, default)


def flag(*flags: str, help: str) -> VerbParameter:
    """Return an option without a value."""
    return option(*flags, kind=FLAG, help=help)


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb."""

    name: str
    request: str
    """`METHOD path?query`. With a plan: the main one of its requests."""
    help: str
    parameters: tuple[VerbParameter, ...] = ()
    body: Callable[[Given], Json] | None = None
    plan: Callable[[Given], Plan] | None = None
    destroys: str = ""
    """Words for what is lost, such as "the topic {topic} and its messages"; empty: nothing, and nothing is asked."""
    section: str = ""
    """Heading in the help of its group."""
    renderer: str = ""
    """Name of a function of `quire.cli.admin.rendering.tables`; empty: the shape of the answer decides."""
    confirmed_by: str = ""
    """A flag of the original that answers the question in advance, as --yes does."""

    @property
    def method(self) -> str:
        return self.request.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path without the query."""
        return self.request.partition(" ")[2].partition("?")[0]

    @property
    def changes(self) -> bool:
        return self.method != "GET"

    def run(self, given: Given) -> Plan:
        """Yield the requests; return the answer. Raises CommandLineError."""
        if self.plan is not None:
            return self.plan(given)
        return self._single(given)

    def _single(self, given: Given) -> Plan:
        body = ABSENT if self.body is None else self.body(given)
        answer = yield made(self.request, given, body)
        return answer


@dataclass(frozen=True, slots=True)
class VerbGroup:
    """Verbs about one kind of thing."""

    name: str
    help: str
    verbs: tuple[Verb, ...]
    aliases: tuple[str, ...] = ()
    hidden: tuple[Verb, ...] = field(default=())
    """Verbs that are understood here too, and shown elsewhere."""

    def find(self, name: str) -> Verb | None:
        return next((each for each in (*self.verbs, *self.hidden) if each.name == name), None)


def made(request: str, given: Given, body: Json = ABSENT, content_type: str = JSON_TYPE) -> Request:
    """Return the request of a template."""
    method, _, rest = request.partition(" ")
    path, _, query = rest.partition("?")
    filled = _FIELD.sub(lambda found: _in_path(given[found[1]], bare=bool(found[2])), path)
    values = [
        (name, _in_query(given[value[1:-1]])) for name, _, value in (each.partition("=") for each in _split(query))
    ]
    told = urlencode([(name, value) for name, value in values if value is not None], quote_via=quote, safe="")
    whole = filled if filled.startswith("/") else f"{ROOT}{filled}"
    return Request(method, f"{whole}?{told}" if told else whole, body, content_type)


def read(verb: Verb, texts: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """Return the values of a command line. Raises CommandLineError for the first that cannot be read."""
    found: dict[str, Any] = {"now_ms": now_ms}
    for each in verb.parameters:
        text = texts.get(each.name)
        text = each.default if text is None else text
        if each.kind is FLAG:
            found[each.name] = bool(text)
            continue
        if text is None or (each.kind.is_list and not text):
            if each.required:
                raise CommandLineError(f"{shown(each)} is missing: give {example(each)}")
            found[each.name] = None
            continue
        try:
            found[each.name] = pairs(list(text)) if each.kind is PAIRS else each.kind.read(text)
        except (ValueError, InvalidNameError) as error:
            raise CommandLineError(f"{shown(each)} {text!r}: {error}") from None
    return found


def shown(parameter: VerbParameter) -> str:
    """Return the name of a parameter as on the command line."""
    return parameter.flags[0] if parameter.flags else parameter.name.upper()


def example(parameter: VerbParameter) -> str:
    """Return a parameter with its value, as on the command line."""
    return f"{parameter.flags[0]} {parameter.kind.metavar}" if parameter.flags else parameter.kind.metavar


def described(text: str, given: Given) -> str:
    """Return a text with values of the command line."""
    return _FIELD.sub(lambda found: str(given[found[1]]), text)


def _split(query: str) -> list[str]:
    return query.split("&") if query else []


def _in_path(value: Any, *, bare: bool) -> str:
    if isinstance(value, TopicName):
        path = f"{value.namespace_path}/{quote(value.local, safe='')}"
        return path if bare else f"{value.domain}/{path}"
    if isinstance(value, NamespaceName):
        return str(value)
    text = str(value)
    if text in ("", ".", ".."):
        raise CommandLineError(f"{text!r} cannot be a name in a path: give another one")
    return quote(text, safe="")


def _in_query(value: Any) -> str | None:
    if value is None or value is False:
        return None
    return "true" if value is True else str(value)
