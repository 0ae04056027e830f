"""One verb, from the command line to the printed answer."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from quire.cli.admin.connection import DEFAULT_URL, AdminConnection, RequestSender, Target
from quire.cli.admin.contexts import ENVIRONMENT, load, path_of, target_of
from quire.cli.admin.errors import DONE, INTERRUPTED, AdminCommandError, CommandLineError, RequestRefusedError
from quire.cli.admin.rendering import tables
from quire.cli.admin.verbs import ABSENT, Outcome, Plan, Request, Verb, described, read

Open = Callable[[Target], RequestSender]
open_connection: Open = AdminConnection


def run_verb(verb: Verb, title: str, texts: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """Run a verb and print its answer; return the exit code. Errors are one line on standard error."""
    try:
        now_ms = time.time_ns() // 1_000_000
        given = read(verb, texts, now_ms)
        target = target_of_options(options, os.environ)
        plan = verb.run(given)
        dry = bool(options.get("dry_run"))
        if verb.destroys and not dry and not options.get("yes") and not given.get(verb.confirmed_by):
            confirm(described(verb.destroys, given), _name(verb, given), target)
        with open_connection(target) as sender:
            answer, planned = drive(plan, sender, dry=dry)
        code = DONE
        if isinstance(answer, Outcome):
            answer, code = answer.answer, answer.code
        if dry:
            _print_requests(planned, target, as_json=bool(options.get("as_json")))
        elif options.get("as_json"):
            if answer is not None or not verb.changes:
                print(json.dumps(tables.as_json(answer), indent=2, ensure_ascii=False))
        elif answer is not None:
            tables.printed(tables.blocks(verb.renderer, answer, now_ms))
        elif verb.name.startswith("get-"):
            print("not set")
        sys.stdout.flush()
        return code
    except AdminCommandError as error:
        print(f"quire admin {title}: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return INTERRUPTED


def drive(plan: Plan, sender: RequestSender, *, dry: bool) -> tuple[Any, list[Request]]:
    """Make the requests of a plan; return its answer, and the requests that a dry run would have made.

    A dry run makes requests that only read while a plan needs their answers, and ends at its first change.
    """
    answer: Any = None
    planned: list[Request] = []
    try:
        request = next(plan)
        while True:
            if dry and request.changes:
                planned.append(request)
                plan.close()
                return None, planned
            try:
                found = sender.send(request)
            except RequestRefusedError as error:
                request = plan.throw(error)  # (a plan may expect it)
            else:
                request = plan.send(found)
    except StopIteration as end:
        answer = end.value
    return answer, planned


def target_of_options(options: Mapping[str, Any], environment: Mapping[str, str]) -> Target:
    """Return the cluster that options, environment and contexts name. Raises CommandLineError."""
    contexts = None
    name = options.get("quire_context") or environment.get(ENVIRONMENT, "")
    if not name and not options.get("quire_url"):
        contexts = load(path_of(environment))
        name = contexts.current
    target = Target()
    if name:
        contexts = contexts or load(path_of(environment))
        target = target_of(name, contexts.get(name))
    named = {
        "url": "quire_url",
        "plugin": "quire_plugin",
        "parameters": "quire_parameters",
        "trust_file": "quire_trust",
        "certificate_file": "quire_certificate",
        "key_file": "quire_key",
        "insecure": "quire_insecure",
    }
    given: dict[str, Any] = {field: options[option] for field, option in named.items() if options.get(option)}
    if given.get("plugin") and "parameters" not in given:
        given["parameters"] = ""  # (the credentials of the context are of another kind)
    if "certificate_file" in given and not target.plugin:
        given.setdefault("plugin", "tls")
    if options.get("quire_timeout"):
        given["timeout_s"] = _timeout(options["quire_timeout"])
    return replace(target, **given)


def confirm(lost: str, name: str, target: Target) -> None:
    """Ask for the name of what is destroyed. Raises CommandLineError if there is another answer, or no terminal."""
    place = f"context {target.context}, {target.url}" if target.context else target.url
    if not is_terminal():
        raise CommandLineError(f"this destroys {lost} ({place}), and there is no terminal to ask: give --yes")
    print(f"This destroys {lost} ({place}).", file=sys.stderr)
    print(f"Type {name} to confirm: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != name:
        raise CommandLineError("not confirmed, nothing was changed")


def is_terminal() -> bool:
    """Return whether a person can be asked."""
    return sys.stdin.isatty()


def _name(verb: Verb, given: Mapping[str, Any]) -> str:
    """Return what confirms a verb: its first argument, or option, as it is written out."""
    named = [each for each in verb.parameters if given.get(each.name) is not None and given[each.name] is not False]
    return str(given[named[0].name]) if named else verb.name


def _timeout(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e6:
        raise CommandLineError(f"--timeout {text!r} is no number of seconds above 0")
    return found


def _print_requests(planned: list[Request], target: Target, *, as_json: bool) -> None:
    base = (target.url or DEFAULT_URL).rstrip("/")
    if as_json:
        found = [
            {"method": each.method, "url": base + each.path, **({} if each.body is ABSENT else {"body": each.body})}
            for each in planned
        ]
        print(json.dumps({"requests": found}, indent=2, ensure_ascii=False))
        return
    for each in planned:
        print(f"{each.method} {base}{each.path}")
        if each.body is not ABSENT:
            print(json.dumps(each.body, ensure_ascii=False))
    if not planned:
        print("nothing would be changed")
