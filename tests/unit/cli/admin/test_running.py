"""quire.cli.admin.running: confirmation, dry runs, contexts and exit codes; and diff and explain."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from quire.cli.admin import running
from quire.cli.admin.contexts import parse, render
from quire.cli.admin.errors import CommandLineError, NoAnswerError, RequestRefusedError
from quire.cli.admin.verbs import Request
from tests.support.admin_commands import admin
from tests.unit.cli.admin.recording import Recorder, error_of, recorded, shown

DELETE = "topics delete t/n/x"


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    found = recorded(monkeypatch)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return found


def made(broker: Recorder) -> list[str]:
    return [shown(each) for each in broker.requests]


# --- what destroys


def test_without_a_terminal_what_destroys_needs_yes(broker: Recorder) -> None:
    code, out, err = admin(DELETE)
    assert (code, out, made(broker)) == (2, "", [])
    assert "this destroys the topic persistent://t/n/x, its messages and subscriptions (http://127.0.0.1:8080)" in err
    assert err.endswith("there is no terminal to ask: give --yes\n")
    assert admin(f"{DELETE} --yes") == (0, "", "")
    assert made(broker) == ["DELETE /admin/v2/persistent/t/n/x"]


def test_on_a_terminal_the_name_is_typed(broker: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "is_terminal", lambda: True)
    assert admin(DELETE, typed="yes\n")[0] == 2
    assert admin(DELETE)[0] == 2
    assert made(broker) == []
    code, _, err = admin(DELETE, typed="persistent://t/n/x\n")
    assert (code, made(broker)) == (0, ["DELETE /admin/v2/persistent/t/n/x"])
    assert err.startswith("This destroys the topic persistent://t/n/x,")


def test_the_flag_of_the_original_answers_the_question_too(broker: Recorder) -> None:
    assert admin("namespaces clear-backlog t/n")[0] == 2
    assert admin("namespaces clear-backlog t/n --force")[0] == 0
    assert admin("topics delete t/n/x --force")[0] == 2  # (this one is about the broker's refusal)


def test_a_dry_run_changes_nothing_and_asks_nothing(broker: Recorder) -> None:
    assert admin(f"{DELETE} --dry-run --url http://b:1/") == (0, "DELETE http://b:1/admin/v2/persistent/t/n/x\n", "")
    code, out, _ = admin("tenants update t --admin-roles x --dry-run --json")
    url = "http://127.0.0.1:8080/admin/v2/tenants/t"
    body = {"adminRoles": ["x"], "allowedClusters": ["c1"]}
    assert (code, json.loads(out)) == (0, {"requests": [{"method": "POST", "url": url, "body": body}]})
    assert made(broker) == ["GET /admin/v2/tenants/t"]


# --- exit codes


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestRefusedError("no", status=404), 1),
        (CommandLineError("no"), 2),
        (NoAnswerError("no"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_have_exit_codes_and_are_one_line(
    error: BaseException, code: int, broker: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(request: Request) -> None:
        raise error

    monkeypatch.setattr(broker, "send", send)
    said = "" if isinstance(error, KeyboardInterrupt) else "quire admin tenants list: no\n"
    assert admin("tenants list") == (code, "", said)


def test_get_prints_not_set_and_null(broker: Recorder) -> None:
    assert admin("namespaces get-retention t/n") == (0, "not set\n", "")
    assert admin("namespaces get-retention t/n --json") == (0, "null\n", "")
    assert admin("namespaces remove-retention t/n --json") == (0, "", "")


def test_peeking_ends_with_the_last_message(broker: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(request: Request) -> str:
        if request.path.endswith("/3"):
            raise RequestRefusedError("none", status=404)
        return request.path[-1]

    monkeypatch.setattr(broker, "send", send)
    assert admin("topics peek-messages x -s s -n 9") == (0, "1\n2\n", "")


# --- diff and explain


def test_policies_that_differ_are_shown_side_by_side(broker: Recorder) -> None:
    broker.answers["/admin/v2/namespaces/u/n"] = {
        "retention_policies": None,
        "bundles": {"numBundles": 4},
        "deleted": [],
    }
    code, out, _ = admin("diff t/n u/n")
    lines = [" ".join(line.split()) for line in out.splitlines() if line.strip()]
    assert (code, lines) == (
        0,
        ["policy t/n u/n", "bundles.numBundles - 4", "retention_policies.retentionTimeInMinutes 5 -"],
    )
    code, out, _ = admin("diff t/n u/n --exit-code --json")
    differences = [
        {"policy": "bundles.numBundles", "first": None, "second": 4},
        {"policy": "retention_policies.retentionTimeInMinutes", "first": 5, "second": None},
    ]
    assert (code, json.loads(out)) == (4, {"first": "t/n", "second": "u/n", "differences": differences})
    assert admin("diff t/n t/n --exit-code") == (0, "t/n and t/n have the same policies\n", "")


ANSWER = {
    "subject": "subscription s of persistent://public/default/a b",
    "state": "blocked",
    "cause": "no-consumers",
    "sentence": "3 entries wait and no consumer is connected.",
    "since_ms": 1_000_000_000_000 - 90_000,
    "remedy": "Connect a consumer.",
}
TEXT = (
    f"{ANSWER['subject']}: blocked, no-consumers (for 1m 30s)\n  {ANSWER['sentence']}\n  remedy: {ANSWER['remedy']}\n"
)


def test_a_topic_is_explained_with_its_partitions(broker: Recorder) -> None:
    path = "/admin/v2/persistent/public/default/a%20b"
    whole = {"topic": "t", "producers": ANSWER, "ledgers": [ANSWER, ANSWER], "subscriptions": {"s": ANSWER}}
    broker.answers |= {f"{path}/explain": {"partitions": {"p0": whole, "p1": whole}}}
    broker.answers |= {f"{path}/subscription/s%2F1/explain": ANSWER}
    assert admin("explain 'a b'") == (0, TEXT * 8, "")
    assert admin("explain 'a b' -s s/1") == (0, TEXT, "")
    assert json.loads(admin("explain 'a b' -s s/1 --json")[1]) == ANSWER


# --- contexts


def test_a_context_is_created_used_listed_and_deleted(broker: Recorder, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("abc")
    secret.chmod(0o600)
    assert admin(f"context create prod --url https://p:8443 --token-file {secret} --timeout 5") == (0, "", "")
    assert admin("context create test --url http://t:8080") == (0, "", "")
    assert os.stat(tmp_path / "quire" / "contexts.toml").st_mode & 0o777 == 0o600
    code, out, _ = admin("context list")
    assert (code, [line.split() for line in out.splitlines() if line.strip()]) == (
        0,
        [
            ["name", "url", "credentials"],
            ["*", "prod", "https://p:8443", "token", "in", str(secret)],
            ["test", "http://t:8080", "none"],
        ],
    )
    admin("tenants list")
    assert (broker.target.url, broker.target.plugin, broker.target.timeout_s) == ("https://p:8443", "token", 5.0)
    assert broker.target.parameters == secret.as_uri()
    assert admin("context use test")[0] == 0
    admin("tenants list")
    assert (broker.target.url, broker.target.context) == ("http://t:8080", "test")
    assert admin("context delete test")[0] == 0
    admin("tenants list")
    assert (broker.target.url, broker.target.context) == ("http://127.0.0.1:8080", "")
    assert json.loads(admin("context list --json")[1])["current"] is None


def test_the_command_line_precedes_the_environment_which_precedes_the_current_context(
    broker: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        assert admin(f"context create {name} --url http://{name}:1")[0] == 0
    admin("tenants list")
    assert broker.target.url == "http://a:1"
    monkeypatch.setenv("QUIRE_CONTEXT", "b")
    admin("tenants list")
    assert broker.target.url == "http://b:1"
    admin("tenants list --context c")
    assert broker.target.url == "http://c:1"
    admin("--context c tenants list --timeout 7")
    assert (broker.target.url, broker.target.timeout_s) == ("http://c:1", 7.0)
    admin("tenants list --url http://d:1")
    assert broker.target.url == "http://d:1"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_credentials_that_others_can_use_are_refused(mode: int, broker: Recorder, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("abc")
    secret.chmod(mode)
    create = f"context create prod --url https://p:8443 --token-file {secret}"
    remedy = f"{secret} has mode {mode:04o}, so others can use it: chmod 600 {secret}\n"
    assert admin(create) == (2, "", f"quire admin context create: {remedy}")
    secret.chmod(0o600)
    assert admin(create)[0] == 0
    secret.chmod(mode)
    assert admin("tenants list") == (2, "", f"quire admin tenants list: {remedy}")
    (tmp_path / "quire" / "contexts.toml").chmod(mode)
    assert "contexts.toml has mode" in admin("tenants list")[2]
    assert made(broker) == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("context use x", "no context x; `quire admin context create x --url ...` makes it"),
        ("context create x --url tcp://a", "--url 'tcp://a' is no web address"),
        ("context create x --url http://a --token-file /nonexistent/a", "cannot be read: No such file"),
        ("context create x --url http://a --key-file a", "a certificate needs its key"),
        ("tenants list --context x", "no context x"),
        ("tenants list --timeout 0", "--timeout '0' is no number of seconds above 0"),
    ],
)
def test_errors_about_contexts_say_what_to_do(words: str, text: str, broker: Recorder) -> None:
    code, _, err = admin(words)
    assert (code, text in err) == (2, True), err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("current = ", "is not TOML"),
        ("curent = 'a'", "curent is not understood"),
        ("[contexts.a]\nurl = 7", "contexts.a.url = 7 has a wrong type"),
        ("[contexts.a]\nurl = 'x'\ntoken = 'y'", "contexts.a.token is no key; there are url, token_file"),
        ("[contexts.a]\ntimeout = 7", "contexts.a has no url"),
        ("[contexts.a]\nurl = 'x'\ntimeout = true", "contexts.a.timeout = True has a wrong type"),
    ],
)
def test_a_file_of_contexts_that_cannot_be_read_names_the_key(text: str, problem: str) -> None:
    assert problem in str(error_of(CommandLineError, lambda: parse(text)))


def test_a_file_of_contexts_is_read_as_it_was_written() -> None:
    keys = {"url": 'http://"a"\\\u00e9\n\x7f', "insecure": True, "timeout": 2.5}
    found = parse(render(parse("")))
    assert dict(found.contexts) == {}
    made_ = type(found)("a b", {"a b": keys, "c.d": {"url": "x"}})
    assert parse(render(made_)) == made_
