"""`quire admin`: questions to a broker over its admin REST."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Any
from urllib.parse import quote

import typer

NOT_FOUND = 1
UNREACHABLE = 2
TIMEOUT_S = 60.0

app = typer.Typer(no_args_is_help=True, help="Ask a broker over its admin REST.")


@app.callback()
def admin() -> None:
    """Ask a broker over its admin REST."""


@app.command()
def explain(
    topic: Annotated[str, typer.Argument(help="A topic, such as orders or persistent://public/default/orders.")],
    subscription: Annotated[
        str | None, typer.Option("--subscription", "-s", help="Explain this subscription alone.")
    ] = None,
    url: Annotated[str, typer.Option(help="Web address of any broker.")] = "http://127.0.0.1:8080",
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    plugin: Annotated[
        str, typer.Option("--auth-plugin", help="token or basic, or the original's class. Empty: no credentials.")
    ] = "",
    parameters: Annotated[
        str,
        typer.Option("--auth-params", help="Its parameters, such as file:///path of a token, which ps does not show."),
    ] = "",
) -> None:
    """Print why nothing is delivered, why producers wait, and what keeps ledgers, each with the remedy.

    Exit codes: 0 explained, 1 the broker refuses, such as for a topic or subscription that does not exist, 2 there is
    no answer.
    """
    raise SystemExit(_explain(topic, subscription, url, plugin, parameters, as_json=as_json))


def _explain(topic: str, subscription: str | None, url: str, plugin: str, parameters: str, *, as_json: bool) -> int:
    import httpx2

    from quire.client.authentication import CredentialsError, from_plugin
    from quire.wire.pulsar.errors import InvalidNameError
    from quire.wire.pulsar.names import TopicName

    try:
        name = TopicName.parse(topic)
        credentials = from_plugin(plugin, parameters)
        headers = {} if credentials is None else credentials.headers()
    except (InvalidNameError, CredentialsError) as error:
        return _failed(str(error), NOT_FOUND)

    def authenticate(request: httpx2.Request) -> None:
        request.headers.update(headers)  # also of one to another broker: redirects lose them

    of = "" if subscription is None else f"/subscription/{quote(subscription, safe='')}"
    hooks = {"request": [authenticate]}
    path = f"/admin/v2/persistent/{name.namespace_path}/{quote(name.local, safe='')}{of}/explain"
    try:
        with httpx2.Client(timeout=TIMEOUT_S, follow_redirects=True, event_hooks=hooks) as client:
            response = client.get(f"{url.rstrip('/')}{path}")
        found = response.json()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        return _failed(f"no answer from {url}: {error or type(error).__name__}", UNREACHABLE)
    if response.status_code != 200:
        reason = found.get("reason") if isinstance(found, dict) else None
        return _failed(f"{reason or response.status_code}", NOT_FOUND)
    print(json.dumps(found, indent=2) if as_json else "\n".join(_lines(found)))
    return 0


def _failed(text: str, code: int) -> int:
    print(f"quire admin explain: {text}", file=sys.stderr)
    return code


def _lines(found: dict[str, Any]) -> list[str]:
    """Return the answers of a response as text."""
    if "partitions" in found:
        return [line for each in found["partitions"].values() for line in _lines(each)]
    if "sentence" in found:
        return _answer(found)
    answers = [found["producers"], *found["subscriptions"].values(), *found["ledgers"]]
    return [line for each in answers for line in _answer(each)]


def _answer(found: dict[str, Any]) -> list[str]:
    since = ""
    if found["since_ms"] is not None:
        since = f" (for {max(0, round(time.time() - found['since_ms'] / 1000))} s)"
    return [
        f"{found['subject']}: {found['state']}, {found['cause']}{since}",
        f"  {found['sentence']}",
        f"  remedy: {found['remedy']}",
    ]
