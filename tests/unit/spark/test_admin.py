"""REST requests of the planner: the right resources, retries of passing errors up to a deadline, permanent errors."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from quire.client.authentication import basic, basic_file, token, token_file
from quire.client.message_id import MessageId
from quire.spark.admin import TOGETHER_MIN, Admin, AdminRefusedError, TopicMissingError, topic_path
from quire.spark.errors import OptionError, SourceUnavailableError
from quire.spark.options.parse import Options
from quire.spark.runtime import client_options
from tests.support.refusals import refuses
from tests.support.server import free_port

TOPIC = "persistent://public/default/x"
BASE = "/admin/v2/persistent/public/default"


class Web:
    """A server with answers by path, each given once and the last one repeatedly. It records the requests."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, object]]] = {}
        self.asked: list[tuple[str, str, object]] = []
        self.authorizations: list[str | None] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                web.asked.append((self.command, self.path, json.loads(body) if body else None))
                web.authorizations.append(self.headers.get("Authorization"))
                answers = web.answers.get(self.path, [(404, {"reason": "Topic not found"})])
                status, found = answers.pop(0) if len(answers) > 1 else answers[0]
                data = found.encode() if isinstance(found, str) else json.dumps(found).encode()
                self.send_response(status)
                if status == 307:
                    self.send_header("Location", str(found))
                    data = b""
                data = b"" if status == 204 else data
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_DELETE = handle_any  # noqa: N815 - the base class looks for these names

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture
def admin(web: Web) -> Iterator[Admin]:
    made = Admin(web.url, timeout_s=5)
    yield made
    made.close()


def test_each_question_goes_to_its_resource(web: Web, admin: Admin):
    web.answers = {
        f"{BASE}/x/internalStats": [(200, {"ledgers": []})],
        f"{BASE}/x/partitions": [(200, {"partitions": 4})],
        f"{BASE}/x/messageid/1234": [(200, {"ledgerId": 5, "entryId": 6, "partitionIndex": -1})],
        f"{BASE}/x/subscriptions": [(200, ["a", "b"])],
    }
    assert admin.internal_stats(TOPIC) == {"ledgers": []}
    assert admin.partitions(TOPIC) == 4
    assert admin.message_id_at(TOPIC, 1234) == MessageId(5, 6)
    assert admin.subscriptions(TOPIC) == ["a", "b"]


def test_a_subscription_is_made_at_a_position_and_told_if_it_was_there(web: Web, admin: Admin):
    path = f"{BASE}/x/subscription/a%2Fb"
    web.answers = {path: [(204, ""), (409, {"reason": "Subscription already exists"})]}
    assert admin.create_subscription(TOPIC, "a/b", MessageId(5, 6))
    assert not admin.create_subscription(TOPIC, "a/b", MessageId(5, 6))
    assert web.asked[0] == ("PUT", path, {"ledgerId": 5, "entryId": 6, "partitionIndex": -1})


def test_brokers_that_do_not_offload_are_another_error_than_a_missing_topic(web: Web, admin: Admin):
    web.answers = {f"{BASE}/x/internalStats": [(200, {"ledgers": []})]}
    refuses(AdminRefusedError, lambda: admin.offloading(TOPIC), "only those of Quire .* quire pipeline archive")
    refuses(TopicMissingError, lambda: admin.offloading("persistent://public/default/none"), "does not exist")


def test_dropping_a_subscription_that_is_not_there_is_no_error(web: Web, admin: Admin):
    web.answers = {f"{BASE}/x/subscription/a": [(204, "")], f"{BASE}/x/subscription/b?force=true": [(204, "")]}
    assert admin.delete_subscription(TOPIC, "a")
    assert admin.delete_subscription(TOPIC, "b", force=True)
    assert not admin.delete_subscription(TOPIC, "c")


def test_what_is_passing_is_tried_again(web: Web, admin: Admin):
    web.answers[f"{BASE}/x/partitions"] = [(503, {"reason": "moving"}), (500, "oops"), (200, {"partitions": 1})]
    assert admin.partitions(TOPIC) == 1
    assert len(web.asked) == 3


def test_a_redirect_to_the_owner_is_followed(web: Web, admin: Admin):
    web.answers = {f"{BASE}/x/partitions": [(307, "/elsewhere")], "/elsewhere": [(200, {"partitions": 2})]}
    assert admin.partitions(TOPIC) == 2


def test_what_does_not_pass_ends_at_the_deadline_with_its_cause(web: Web):
    web.answers[f"{BASE}/x/partitions"] = [(503, {"reason": "never ready"})]
    admin = Admin(web.url, timeout_s=0.3)
    with pytest.raises(
        SourceUnavailableError, match=rf"partitions of {TOPIC} .* 0.3 s .* last with 503 never ready; option admin.url"
    ):
        admin.partitions(TOPIC)
    admin.close()
    nobody = Admin(f"http://127.0.0.1:{free_port()}", timeout_s=0.2)
    refuses(SourceUnavailableError, lambda: nobody.partitions(TOPIC), "ConnectError")
    nobody.close()


def test_a_missing_topic_and_a_refusal_are_final_and_keep_the_brokers_words(web: Web, admin: Admin):
    refuses(TopicMissingError, lambda: admin.internal_stats(TOPIC), f"topic {TOPIC} does not exist .*Topic not found")
    web.answers[f"{BASE}/x/partitions"] = [(403, {"reason": "not for you"})]
    refuses(AdminRefusedError, lambda: admin.partitions(TOPIC), "403: not for you")
    web.answers[f"{BASE}/x/partitions"] = [(412, "plain words")]
    refuses(AdminRefusedError, lambda: admin.partitions(TOPIC), "plain words")
    assert len(web.asked) == 3


def test_many_topics_are_asked_together_and_keep_their_order(web: Web, admin: Admin):
    names = [f"persistent://public/default/t{number}" for number in range(20)]
    for number in range(0, 20, 2):
        web.answers[f"{BASE}/t{number}/internalStats"] = [(200, {"n": number})]
    found = admin.many_internal_stats(names)
    assert found == [{"n": number} if number % 2 == 0 else None for number in range(20)]
    assert admin.many_internal_stats([]) == []


def partitions_of(topic: str, count: int) -> list[str]:
    return [f"{topic}-partition-{number}" for number in range(count)]


def test_many_partitions_of_a_topic_are_one_request(web: Web, admin: Admin):
    names = partitions_of(TOPIC, TOGETHER_MIN)
    web.answers[f"{BASE}/x/partitioned-internalStats"] = [
        (200, {"partitions": {name: {"n": number} for number, name in enumerate(names)}})
    ]
    assert admin.many_internal_stats(names[::-1]) == [{"n": number} for number in range(TOGETHER_MIN)][::-1]
    assert [path for _, path, _ in web.asked] == [f"{BASE}/x/partitioned-internalStats"]


def test_partitions_that_are_not_in_the_answer_for_all_of_them_are_asked_one_by_one(web: Web, admin: Admin):
    names = partitions_of(TOPIC, TOGETHER_MIN)
    web.answers[f"{BASE}/x/partitioned-internalStats"] = [
        (200, {"partitions": {name: {"n": 1} for name in names[2:]}}),
        (503, {"reason": "one of them moves"}),
        (200, "no JSON"),
        (404, {"reason": "Topic not found"}),
        (200, {"partitions": None}),
    ]
    web.answers[f"{BASE}/x-partition-1/internalStats"] = [(200, {"n": 2})]
    assert admin.many_internal_stats(names) == [None, {"n": 2}, *[{"n": 1}] * (TOGETHER_MIN - 2)]
    for _ in range(4):
        assert admin.many_internal_stats(names) == [None, {"n": 2}, *[None] * (TOGETHER_MIN - 2)]


def test_metadata_and_few_partitions_are_asked_one_by_one(web: Web, admin: Admin):
    names = partitions_of(TOPIC, TOGETHER_MIN)
    web.answers[f"{BASE}/x/partitioned-internalStats"] = [(200, {"partitions": {name: {"n": 1} for name in names}})]
    assert admin.many_internal_stats(names, metadata=True) == [None] * TOGETHER_MIN
    assert admin.many_internal_stats(names[1:]) == [None] * (TOGETHER_MIN - 1)


def test_nothing_is_connected_before_the_first_question():
    Admin("http://127.0.0.1:1").close()


def test_names_are_escaped_as_one_part_of_the_path():
    assert topic_path("persistent://public/default/a b/c%") == "persistent/public/default/a%20b%2Fc%25"


def test_credentials_of_a_file_go_with_each_request_also_to_another_broker(web: Web, tmp_path: Path):
    """A redirect to another host loses the header: this is another one to HTTP, too."""
    file = tmp_path / "token"
    file.write_text("one")
    made = Admin(web.url, timeout_s=5, credentials=token_file(file))
    topic = "persistent://public/default/t"
    other = web.url.replace("127.0.0.1", "localhost")
    path = "/admin/v2/persistent/public/default/t"
    web.answers[f"{path}/partitions"] = [(307, f"{other}{path}/there")]
    web.answers[f"{path}/there"] = [(200, {"partitions": 3})]
    try:
        assert made.partitions(topic) == 3
        file.write_text("two")
        assert made.partitions(topic) == 3
        assert web.authorizations == ["Bearer one", "Bearer one", "Bearer two", "Bearer two"]
        file.unlink()
        with pytest.raises(AdminRefusedError, match="authTokenFile"):
            made.partitions(topic)
    finally:
        made.close()


def test_options_of_a_query_show_no_secret(tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("s3cret")
    options = Options.parse({"topic": "t", "authTokenFile": str(file)}, use="batch")
    assert client_options(options).credentials == token_file(file)
    for shown in (repr(options), repr(client_options(options)), str(pickle.dumps(options))):
        assert "s3cret" not in shown
    users = Options.parse({"topic": "t", "authPasswordFile": str(file)}, use="batch")
    assert client_options(users).credentials == basic_file(file)
    assert client_options(Options.parse({"topic": "t"}, use="batch")).credentials is None


@pytest.mark.parametrize("name", ["pulsar.client.authParams", "authTokens", "kafka.ssl.key.password"])
def test_a_credential_in_an_option_is_refused_without_being_shown(name: str):
    with pytest.raises(OptionError) as caught:
        Options.parse({"topic": "t", name: "token:s3cret"}, use="batch")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(("name", "text"), [("authToken", "s3cret"), ("authPassword", "user:s3cret")])
def test_a_credential_in_an_option_is_used_and_not_shown(name: str, text: str):
    options = Options.parse({"topic": "t", name: text}, use="batch")
    expected = token("s3cret") if name == "authToken" else basic("user", "s3cret")
    assert client_options(options).credentials == expected
    assert pickle.loads(pickle.dumps(options)) == options
    for shown in (repr(options), str(options), f"{options.authentication}", repr(client_options(options))):
        assert "s3cret" not in shown
