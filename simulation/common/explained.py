"""Explanations of brokers, checked in every history.

After the passes in which a broker has worked for a client, now and then, the explanation of each subscription is asked
for and compared with what the subscription has. That takes no task and draws nothing, so histories stay what they are.

- WaitingMessagesHaveACause: while messages wait, the cause that is named is neither "nothing to do" nor, for STALLED_S
  without progress, "nothing stands in the way".
- ExplanationsAreTrue: what is named is so: permits, held messages, holders of keys, due times, counted here anew.

That a cause which is removed lets messages flow is checked where a client removes it: `standalone.explain_history`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from broker.connections.connection import Connection
from broker.context import Context
from broker.dispatch.many_consumers import ManyConsumers
from broker.dispatch.subscription import Subscription
from broker.explain import causes
from broker.explain.causes import Explanation
from broker.explain.delivery import Situation
from broker.server import Broker
from broker.topics.topic import Topic
from quire.wire.pulsar.splitter import Item
from simulation.common.checkers import require
from simulation.common.patching import patched
from simulation.machines.scheduler import HOST
from simulation.machines.trace import now

STALLED_S = 0.2
"""Virtual seconds without progress in which a subscription may not be seen stalled twice."""
LOOK_S = 0.05
"""Virtual seconds between two looks at a broker."""


class Explained:
    """Explanations of the brokers of one history."""

    def __init__(self) -> None:
        self.brokers: dict[str, Broker] = {}
        """The last broker started on each host."""
        self.causes: Counter[str] = Counter()
        """Causes named by looks."""
        self._looked_at: dict[str, float] = {}
        self._stalled: WeakKeyDictionary[Subscription, tuple[float, int]] = WeakKeyDictionary()
        """When each was first seen stalled, and the messages it had sent then."""

    def started(self, broker: Broker) -> None:
        self.brokers[HOST.get()] = broker

    def ask(self, host: str, topic: str, subscription: str) -> Explanation | None:
        """Return the explanation of a subscription, checked; None if the broker has not loaded it."""
        broker = self.brokers.get(host)
        for each in [] if broker is None else broker.topics.loaded():
            if each.name.full == topic and subscription in each.subscriptions:
                assert broker is not None
                return self.check(broker, each, each.subscriptions[subscription])
        return None

    def told(self, topic: str, subscription: str) -> str:
        """Return what the brokers say of a subscription."""
        answers = [(host, self.ask(host, topic, subscription)) for host in self.brokers]
        return "; ".join(f"{host} says: {answer.sentence}" for host, answer in answers if answer is not None)

    def pass_done(self, context: Context) -> None:
        """Look at all subscriptions of a broker, at the end of a pass."""
        for host, broker in self.brokers.items():
            if broker.context is context and now() - self._looked_at.get(host, -LOOK_S) >= LOOK_S:
                self._looked_at[host] = now()
                for topic in broker.topics.loaded():
                    self.look(broker, topic)

    def look(self, broker: Broker, topic: Topic) -> None:
        """Check the explanations of a topic."""
        for subscription in topic.subscriptions.values():
            self.causes[self.check(broker, topic, subscription).code] += 1
        broker.explain.told.producers(topic).as_json()
        for answer in broker.explain.told.ledgers(topic):
            answer.as_json()

    def check(self, broker: Broker, topic: Topic, subscription: Subscription) -> Explanation:
        """Ask for an explanation and check it."""
        told = broker.explain.told
        situation = told.situation(topic, subscription)
        answer = told.delivery(topic, subscription, situation)
        answer.as_json()
        where = f"{answer.subject}: {answer.sentence}"
        idle = answer.cause in (causes.CAUGHT_UP, causes.DELIVERED_UNACKED)
        waits = situation.messages_wait and situation.backlog > 0
        require(not (idle and waits), "WaitingMessagesHaveACause", f"{where} {situation}")
        self._check_stalled(subscription, answer, where)
        self._check_truth(situation, subscription, answer, where)
        return answer

    def _check_stalled(self, subscription: Subscription, answer: Explanation, where: str) -> None:
        if answer.cause is not causes.STALLED:
            self._stalled.pop(subscription, None)
            return
        since, out = self._stalled.setdefault(subscription, (now(), subscription.messages_out))
        if out != subscription.messages_out:
            self._stalled[subscription] = now(), subscription.messages_out
        else:
            require(now() - since < STALLED_S, "WaitingMessagesHaveACause", where)

    def _check_truth(self, situation: Situation, subscription: Subscription, answer: Explanation, where: str) -> None:
        wrong = _wrong(situation, subscription, answer)
        require(not wrong, "ExplanationsAreTrue", f"{where} But {wrong}.")


def _wrong(situation: Situation, subscription: Subscription, answer: Explanation) -> str:
    """Return what contradicts an answer; "" if nothing does."""
    cause = answer.cause
    consumers = {each.name: each for each in subscription.consumers}
    if isinstance(subscription, ManyConsumers):
        held = sum(len(subscription.held(each)) for each in subscription.consumers)
        unsettled = not subscription.settled or subscription.delayed
        if not unsettled and subscription.unacked < held:
            return f"consumers hold {held} entries, and {subscription.unacked} messages are counted"
        if cause is causes.SUBSCRIPTION_UNACKED and all(each.unacked == 0 for each in situation.consumers):
            return "no consumer holds a message"
    if cause is causes.NO_CONSUMERS and consumers:
        return f"{len(consumers)} consumers are connected"
    if cause is causes.NO_PERMITS and any(
        subscription.permits_of(each) > 0 for each in consumers.values() if not each.connection.closed
    ):
        return "" if subscription.single_active else "a consumer has permits"
    if cause is causes.DELAYED and situation.next_due_ms is not None:
        late_ms = situation.now_ms - situation.next_due_ms - situation.tick_ms
        return f"the first is due for {late_ms} ms" if late_ms > 0 else ""
    if cause is causes.KEY_HELD:
        holder = consumers.get(str(answer.details["consumer"]))
        if holder is None or not subscription.held(holder):
            return f"{answer.details['consumer']!r} holds nothing"
    if cause is causes.CAUGHT_UP and subscription.cursor.next_unacked(subscription.cursor.mark_delete) <= (
        subscription.topic.ledger.last_confirmed
    ):
        return "an entry is not acknowledged"
    return ""


@contextmanager
def explanations_checked() -> Iterator[Explained]:
    """Check the explanations of all brokers that start while entered."""
    explained = Explained()
    work, start = Connection._pass, Broker.start

    def worked(self: Connection, items: Iterator[Item]) -> bool:
        done = work(self, items)
        explained.pass_done(self.context)
        return done

    def started(self: Broker) -> None:
        explained.started(self)
        start(self)

    with patched([(Connection, "_pass", worked), (Broker, "start", started)]):
        yield explained
