"""Parts of a request that a handler uses, found in its code: parameters, shapes of bodies, errors (pure).

Why this is hard: a handler is a function, a closure over a policy, or a `partial` of either, and most of what it takes
is taken by functions it calls. So that no list beside the handlers can be forgotten, the names that its code mentions
are followed: constants of its module, what it closes over, and the functions that it calls by name. Methods are not
followed, since their objects are not known; a call of `AdminCall.json` shows by its name.

It finds too much rather than too little: a parameter that a handler reads in one case only, an error that it catches.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple

from broker.admin.errors import AdminError
from broker.errors import BrokerError
from broker.topics.topic_policies.catalog import Policy
from quire.service.web import shapes
from quire.service.web.parameters import Parameter, ParameterError
from quire.service.web.shapes import Body, Shape

_FOLLOWED: Final = (
    "broker.admin.",
    "broker.explain.rest",
    "broker.ownership.isolation",
    "broker.security.authorization.grants",
    "broker.topics.delayed_delivery",
    "broker.topics.policy_values",
    "broker.topics.topic_policies.",
    "quire.service.",
)
"""Modules of functions that are followed; others take no part of a request."""
_NOT_FOLLOWED: Final = (
    "broker.admin.resource",
    "quire.service.log",
    "quire.service.web.shapes",
    "quire.service.web.parameters",
)
_SHAPES: Final = (
    shapes.Anything,
    shapes.ByName,
    shapes.OneText,
    shapes.Either,
    shapes.Listing,
    shapes.Number,
    shapes.Record,
    shapes.Text,
    shapes.Truth,
    shapes.Whole,
)
_READS_BODY: Final = "json"
_READS_CLUSTER: Final = "cluster"


class Late:
    """Handler whose module is imported with its first request."""

    def __init__(self, find: Callable[[], Callable[..., Any]]) -> None:
        self._find = find

    def found(self) -> Callable[..., Any]:
        """Return the handler itself."""
        return self._find()

    async def __call__(self, call: Any) -> Any:
        return await self._find()(call)


@dataclass(slots=True)
class Reached:
    """Parts of a request that a handler uses."""

    parameters: dict[str, Parameter] = field(default_factory=dict)
    """Parameters by name."""
    shapes: list[Shape] = field(default_factory=list)
    """Shapes of values; each is one that the body may have, unless there is a `Body`."""
    bodies: list[Body] = field(default_factory=list)
    has_body: bool = False
    needs_cluster: bool = False
    errors: set[type[Exception]] = field(default_factory=set)

    def body_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the body."""
        found: list[dict[str, Any]] = []
        for each in self.bodies or self.shapes:
            schema = each.shape.schema() if isinstance(each, Body) else each.schema()
            if schema not in found:
                found.append(schema)
        if not found or {} in found:
            return {}
        return found[0] if len(found) == 1 else {"anyOf": found}


def reached(handler: object) -> Reached:
    """Return the parts of a request that a handler uses."""
    follower = _Follower(function_of(handler).__module__)
    follower.follow(handler)
    return follower.found


def function_of(handler: object) -> FunctionType:
    """Return the function behind a handler. Raises TypeError if there is none."""
    while not isinstance(handler, FunctionType):
        if isinstance(handler, Late):
            handler = handler.found()
        elif isinstance(handler, partial):
            handler = handler.func
        elif isinstance(handler, MethodType):
            handler = handler.__func__
        else:
            raise TypeError(f"{handler!r} is no handler")
    unwrapped = inspect.unwrap(handler)
    return unwrapped if isinstance(unwrapped, FunctionType) else function_of(unwrapped)


class _Follower:
    """Follows what one handler mentions."""

    def __init__(self, module: str) -> None:
        """`module`: the one of the handler, whose functions are followed in any case."""
        self.found = Reached()
        self._modules = (*_FOLLOWED, module)
        self._seen: set[int] = set()

    def follow(self, value: object) -> None:
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, Parameter):
            self.found.parameters[value.name] = value
        elif isinstance(value, Body):
            self.found.bodies.append(value)
        elif isinstance(value, _SHAPES):
            self.found.shapes.append(value)
        elif isinstance(value, type):
            if issubclass(value, AdminError | BrokerError | ParameterError):
                self.found.errors.add(value)
        elif isinstance(value, Late):
            self.follow(value.found())
        elif isinstance(value, partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                self.follow(part)
        elif isinstance(value, MethodType):
            self.follow(value.__self__)
            self.follow(value.__func__)
        elif isinstance(value, FunctionType):
            self._follow_function(value)
        elif isinstance(value, Policy):
            self.follow(value.read)
            self.follow(value.may_be_set)
        elif isinstance(value, Mapping):
            for part in list(value.values()):
                self.follow(part)
        elif isinstance(value, tuple | list):
            for part in value:
                self.follow(part)

    def _follow_function(self, function: FunctionType) -> None:
        module = function.__module__
        if not module.startswith(self._modules) or module in _NOT_FOLLOWED:
            return
        self.follow(inspect.unwrap(function))
        for cell in function.__closure__ or ():
            self.follow(cell.cell_contents)
        self.follow(function.__kwdefaults__ or {})
        self.follow(function.__defaults__ or ())
        self._follow_code(function.__code__, function.__globals__)

    def _follow_code(self, code: CodeType, known: Mapping[str, Any]) -> None:
        """Follow the names of a code and of the functions in it. `known`: the names of its module."""
        mentioned = _mentioned(code)
        self.found.has_body |= _READS_BODY in mentioned.attributes
        self.found.needs_cluster |= _READS_CLUSTER in mentioned.attributes
        for name, attribute in mentioned.globals:
            value = known.get(name)
            self.follow(getattr(value, attribute, None) if isinstance(value, ModuleType) else value)
        for part in code.co_consts:
            if isinstance(part, CodeType):
                self._follow_code(part, known)


class _Mentioned(NamedTuple):
    globals: frozenset[tuple[str, str]]
    """Global names, each with the attribute that is taken of it; "": none."""
    attributes: frozenset[str]
    """Attributes of anything else."""


@cache
def _mentioned(code: CodeType) -> _Mentioned:
    names: set[tuple[str, str]] = set()
    attributes: set[str] = set()
    last = ""
    for each in dis.get_instructions(code):
        is_attribute = each.opname in ("LOAD_ATTR", "LOAD_METHOD")
        if is_attribute and last:
            names.add((last, each.argval))
        elif is_attribute:
            attributes.add(each.argval)
        last = each.argval if each.opname == "LOAD_GLOBAL" else ""
        if last:
            names.add((last, ""))
    return _Mentioned(frozenset(names), frozenset(attributes))
