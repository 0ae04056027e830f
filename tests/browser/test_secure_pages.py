"""The console of a secure cluster, as `scripts/cluster up --secure` makes it: TLS on all ports, web ports of bookies
included, tokens, and roles that may not do everything."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping

import pulsar
import pytest
from playwright.sync_api import Browser, Playwright, expect

from tests.browser.conftest import launched
from tests.browser.looking import Look, looking_at
from tests.browser.trusting import trusting
from tools.local_cluster import rest
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.plan import Kind, Plan
from tools.local_cluster.security import ADMIN, CLIENT, Security

pytestmark = [pytest.mark.cluster, pytest.mark.full]

TOPIC = "persistent://public/default/secured"
PORTS = {"httpServerEnabled": "true", "httpServerHost": "127.0.0.1", "httpServerPort": 0}
SLOW_MS = 30_000
"""Deadline of answers for which a broker asks other processes."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("secure-console") / "cluster"
    conf: Mapping[Kind, Mapping[str, object]] = {Kind.BOOKIE: PORTS}
    made = LocalCluster.make(folder, Plan(bookies=2, brokers=2, secure=True, conf=conf))
    try:
        made.up()
        assert made.security is not None
        rest.grant(made.security, made.web_urls[0])
        yield made
        made.refresh()
        assert not made.errors()
    finally:
        made.refresh()
        made.abandon()
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def security(cluster: LocalCluster) -> Security:
    assert cluster.security is not None
    return cluster.security


@pytest.fixture(scope="module")
def client(cluster: LocalCluster, security: Security) -> Iterator[pulsar.Client]:
    """A client that has sent a message to the topic and stays connected."""
    made = pulsar.Client(
        cluster.service_url,
        authentication=pulsar.AuthenticationToken(security.token(CLIENT).read_text()),
        tls_trust_certs_file_path=str(security.trust),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    made.subscribe(TOPIC, "readers")
    made.create_producer(TOPIC).send(b"a secured message")
    yield made
    made.close()


@pytest.fixture(scope="module")
def trustful(playwright: Playwright, cluster: LocalCluster, security: Security) -> Iterator[Browser]:
    """A browser that trusts the certificates of the brokers."""
    shown = [security.certificate(node.name) for node in cluster.nodes(Kind.BROKER)]
    with launched(playwright, trusting(shown)) as started:
        yield started


@pytest.fixture
def look(trustful: Browser, cluster: LocalCluster, client: pulsar.Client) -> Iterator[Look]:
    with looking_at(trustful, cluster.web_urls[0]) as made:
        made.expected.append("401")
        made.go("namespaces")
        yield made


def enter(look: Look, security: Security, role: str) -> None:
    look.button("Enter a token").first.click()
    look.page.locator("dialog input").fill(security.token(role).read_text().strip())
    look.confirm("Use token")


def test_an_administrator_sees_topics_brokers_ledgers_and_messages(
    look: Look, cluster: LocalCluster, security: Security
) -> None:
    enter(look, security, ADMIN)
    look.go("topics")
    expect(look.page.locator(".live-state")).to_have_text("live", timeout=SLOW_MS)
    expect(look.page.locator(".topic-row:not(.head)").get_by_text("secured")).to_be_visible(timeout=SLOW_MS)
    look.topic(TOPIC, "messages")
    expect(look.page.locator(".messages")).to_contain_text("a secured message", timeout=SLOW_MS)
    look.go("brokers")
    look.shows("2 brokers serve")
    look.go("ledgers")
    look.shows(re.compile(r"Examined (\d+) of \1 ledgers"))


def test_bookies_are_reached_at_their_web_ports_behind_https(
    look: Look, cluster: LocalCluster, security: Security
) -> None:
    enter(look, security, ADMIN)
    look.go("bookies")
    look.shows("2 writable")
    expect(look.page.get_by_role("meter")).to_have_count(2)
    look.page.get_by_text("Folders and thresholds").first.click()
    look.shows("quireDiskReserveMb")
    look.go("logs")
    processes = look.page.get_by_role("region", name="Processes")
    expect(processes.locator(".badge.good")).to_have_count(4, timeout=SLOW_MS)  # two brokers, two bookies


def test_an_action_that_a_role_may_not_do_is_refused_in_words_and_changes_nothing(
    look: Look, cluster: LocalCluster, security: Security
) -> None:
    enter(look, security, CLIENT)
    look.topic(TOPIC)
    look.button("Delete").click()
    look.page.locator("dialog[open] input[id$=-typed]").fill("secured")
    look.page.locator("dialog[open]").get_by_role("button", name="Delete", exact=True).click()
    look.shows("Not permitted", "dialog[open]")
    look.shows("role 'client' is not permitted", "dialog[open]")
    look.expected.append("403")
    look.page.keyboard.press("Escape")
    path = f"{cluster.web_urls[0]}/admin/v2/{TOPIC.replace('://', '/')}/stats"
    assert rest.request(security, "GET", path).json()["msgInCounter"] == 1
    for page in ("bookies", "ledgers", "brokers", "logs"):
        look.go(page)
        look.shows("role 'client' is not permitted: it needs super user")
    look.accessible()
