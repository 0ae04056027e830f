"""Flags of `quire perf`, with the names and defaults of pulsar-perf. One that is not here is refused.

Source: PerformanceBaseArguments, PerformanceTopicListArguments and the four commands of pulsar-testclient.
"""

from __future__ import annotations

from dataclasses import dataclass

from quire.cli.messages.access import ClusterAccess, FlagsError, full_name
from quire.cli.messages.flags import argument, flag
from quire.client.compression import KINDS
from quire.client.consumer import TYPES


@dataclass(frozen=True, kw_only=True)
class ReportFlags(ClusterAccess):
    """Flags about what a run prints and writes."""

    test_duration: float = flag(0.0, "--test-duration", "-time", help="Seconds of the test; 0: without end.")
    report_interval: float = flag(10.0, "--report-interval", help="Seconds between two lines.")
    live: bool = flag(True, "--live/--no-live", help="Show a table on a terminal instead of lines.")
    picture: str = flag("", "--picture", help="File (.svg) for a picture of latencies and rates at the end.")

    def check(self) -> None:
        """Raise FlagsError for values that cannot be obeyed."""
        if self.report_interval <= 0:
            raise FlagsError(f"--report-interval is {self.report_interval:g} s, and must be above 0")


@dataclass(frozen=True, kw_only=True)
class HistogramFlags(ReportFlags):
    """Flags of commands with one kind of latency."""

    histogram_file: str = flag("", "--histogram-file", help="File for a log that HdrHistogram's tools read.")


@dataclass(frozen=True, kw_only=True)
class TopicFlags(HistogramFlags):
    """Flags of commands on a list of topics."""

    topics: tuple[str, ...] = argument("Topics; one is a prefix if --num-topics is more.", name="TOPICS...")
    num_topics: int = flag(1, "--num-topics", "--num-topic", "-t", help="Number of topics.")

    def names(self) -> list[str]:
        """Return the full names of the topics. Raises FlagsError."""
        if self.num_topics < 1:
            raise FlagsError(f"--num-topics is {self.num_topics}, and must be above 0")
        names = [full_name(each) for each in self.topics]
        if len(names) == self.num_topics:
            return names
        if len(names) == 1:
            return [f"{names[0]}-{number}" for number in range(self.num_topics)]
        raise FlagsError(f"{len(names)} topics are given, and --num-topics is {self.num_topics}")


@dataclass(frozen=True, kw_only=True)
class ProducerFlags(TopicFlags):
    """Flags of `quire perf produce`."""

    threads: int = flag(1, "--num-test-threads", "-threads", help="Clients, each with a connection and producers.")
    rate: float = flag(100.0, "--rate", "-r", help="Messages per second over all topics; 0: as fast as possible.")
    size: int = flag(1024, "--size", "-s", help="Bytes of a message.")
    num_producers: int = flag(1, "--num-producers", "-n", help="Producers of each topic.")
    separator: str = flag("-", "--separator", help="Text between the producer's name and its number.")
    producer_name: str = flag("", "--producer-name", "-pn", help="Prefix of the producers' names.")
    chunking: bool = flag(False, "--chunking", "-ch", help="Cut messages above the broker's limit; no batches then.")
    max_outstanding: int = flag(0, "--max-outstanding", "-o", help="Messages of a producer without receipt; 0: 64 MiB.")
    partitions: int | None = flag(None, "--partitions", "-np", help="Create the topics with so many partitions.")
    num_messages: int = flag(0, "--num-messages", "-m", help="Messages in all; 0: without end.")
    compression: str = flag("none", "--compression", "-z", help=f"One of {', '.join(KINDS)}.")
    payload_file: str = flag("", "--payload-file", "-f", help="File of payloads, chosen at random.")
    payload_delimiter: str = flag("\\n", "--payload-delimiter", "-e", help="Text between two payloads of the file.")
    batch_time_window: float = flag(1.0, "--batch-time-window", "-b", help="Milliseconds for which a batch is open.")
    disable_batching: bool = flag(False, "--disable-batching", "-db", help="Send each message by itself.")
    batch_max_messages: int = flag(1000, "--batch-max-messages", "-bm", help="Messages of a batch at most.")
    batch_max_bytes: int = flag(4 << 20, "--batch-max-bytes", "-bb", help="Bytes of a batch at most.")
    warmup_time: float = flag(1.0, "--warmup-time", help="Seconds at the start without latencies.")
    delay: int = flag(0, "--delay", "-d", help="Seconds for which brokers hold each message back.")
    delay_range: str = flag("", "--delay-range", "-dr", help="The same, at random: from,below.")
    set_event_time: bool = flag(False, "--set-event-time", "-set", help="Give messages their event time.")
    key_mode: str = flag("", "--message-key-generation-mode", "-mk", help="Keys: autoIncrement or random.")
    txn_enable: bool = flag(False, "--txn-enable", "-txn", help="Send in transactions.")
    txn_timeout: int = flag(10, "--txn-timeout", "-tto", help="Seconds until a transaction is aborted.")
    txn_messages: int = flag(50, "--numMessage-perTransaction", "-nmt", help="Messages in a transaction.")
    abort: bool = flag(False, "-abort", help="Abort the transactions.")
    from_schedule: bool = flag(
        False, "--from-schedule", help="Measure from the moment that the rate gives, not from that of sending."
    )
    expected_interval: bool = flag(
        False, "--expected-interval", help="Count also what a stall kept from being sent (HdrHistogram's correction)."
    )

    def check(self) -> None:
        super().check()
        for name, value in (
            ("--num-test-threads", self.threads),
            ("--num-producers", self.num_producers),
            ("--batch-max-messages", self.batch_max_messages),
            ("--batch-max-bytes", self.batch_max_bytes),
            ("--numMessage-perTransaction", self.txn_messages),
            ("--txn-timeout", self.txn_timeout),
        ):
            if value < 1:
                raise FlagsError(f"{name} is {value}, and must be above 0")
        if self.size < 0 or self.rate < 0:
            raise FlagsError("--size and --rate must not be below 0")
        if self.compression.lower() not in KINDS:
            raise FlagsError(f"--compression {self.compression} is none of {', '.join(KINDS)}")
        if self.key_mode not in ("", "autoIncrement", "random"):
            raise FlagsError(f"--message-key-generation-mode {self.key_mode} is neither autoIncrement nor random")
        if self.abort and not self.txn_enable:
            raise FlagsError("-abort needs --txn-enable")
        if (self.expected_interval or self.from_schedule) and not self.rate:
            raise FlagsError("--expected-interval and --from-schedule need a --rate")
        if self.expected_interval and self.from_schedule:
            raise FlagsError("--expected-interval and --from-schedule count the same wait; give one of them")
        self.delays()

    @property
    def batching(self) -> bool:
        """Return whether messages are sent in batches. Delayed messages never are."""
        return not (self.disable_batching or self.chunking or self.delay or self.delay_range)

    def delays(self) -> tuple[int, int]:
        """Return the seconds of delay, from and below; (0, 1): none. Raises FlagsError."""
        if not self.delay_range:
            return max(self.delay, 0), max(self.delay, 0) + 1
        try:
            low, high = (int(each) for each in self.delay_range.split(","))
        except ValueError:
            raise FlagsError(f"--delay-range {self.delay_range!r} has not the form from,below, such as 1,300") from None
        if not 0 <= low < high:
            raise FlagsError(f"--delay-range {self.delay_range!r}: the first number must be below the second")
        return low, high


@dataclass(frozen=True, kw_only=True)
class SubscriptionFlags(ReportFlags):
    """Flags about subscriptions."""

    subscriptions: tuple[str, ...] = flag((), "--subscriptions", "-ss", help="Subscriptions, divided by commas (sub).")
    num_subscriptions: int = flag(1, "--num-subscriptions", "-ns", help="Subscriptions of each topic.")
    receiver_queue_size: int = flag(1000, "--receiver-queue-size", "-q", help="Messages that may be sent ahead.")
    replicated: bool = flag(False, "--replicated", "-rs", help="Replicate the state of the subscription.")

    def check(self) -> None:
        super().check()
        if self.num_subscriptions < 1 or self.receiver_queue_size < 1:
            raise FlagsError("--num-subscriptions and --receiver-queue-size must be above 0")
        self.subscription_names()

    def subscription_names(self) -> list[str]:
        """Return the subscriptions. Raises FlagsError."""
        names = [name for each in self.subscriptions for name in each.split(",") if name] or ["sub"]
        if len(names) == self.num_subscriptions:
            return names
        if len(names) == 1:
            return [f"{names[0]}-{number}" for number in range(self.num_subscriptions)]
        raise FlagsError(f"{len(names)} subscriptions are given, and --num-subscriptions is {self.num_subscriptions}")


@dataclass(frozen=True, kw_only=True)
class ConsumerFlags(SubscriptionFlags, TopicFlags):
    """Flags of `quire perf consume`."""

    num_consumers: int = flag(1, "--num-consumers", "-n", help="Consumers of each subscription.")
    subscription_type: str = flag("Exclusive", "--subscription-type", "-st", help=f"One of {', '.join(TYPES)}.")
    subscription_position: str = flag("Latest", "--subscription-position", "-sp", help="Latest or Earliest.")
    rate: float = flag(0.0, "--rate", "-r", help="Messages per second, as of a slow consumer; 0: no limit.")
    acks_delay_millis: int = flag(100, "--acks-delay-millis", help="Milliseconds for which acknowledgements gather.")
    num_messages: int = flag(0, "--num-messages", "-m", help="Messages in all; 0: without end.")

    def check(self) -> None:
        super().check()
        if self.num_consumers < 1:
            raise FlagsError(f"--num-consumers is {self.num_consumers}, and must be above 0")
        if self.subscription_type.lower() == "exclusive" and self.num_consumers > 1:
            raise FlagsError("an Exclusive subscription has one consumer; choose another --subscription-type")


@dataclass(frozen=True, kw_only=True)
class ReaderFlags(TopicFlags):
    """Flags of `quire perf read`."""

    rate: float = flag(0.0, "--rate", "-r", help="Messages per second, as of a slow reader; 0: no limit.")
    start_message_id: str = flag("earliest", "--start-message-id", "-m", help="earliest, latest or LEDGER:ENTRY.")
    receiver_queue_size: int = flag(1000, "--receiver-queue-size", "-q", help="Messages that may be sent ahead.")
    num_messages: int = flag(0, "--num-messages", "-n", help="Messages in all; 0: without end.")

    def check(self) -> None:
        super().check()
        if self.receiver_queue_size < 1:
            raise FlagsError("--receiver-queue-size must be above 0")


@dataclass(frozen=True, kw_only=True)
class TransactionFlags(SubscriptionFlags):
    """Flags of `quire perf transaction`."""

    topics_c: tuple[str, ...] = flag((), "--topics-c", help="Topics to acknowledge on (test-consume).")
    topics_p: tuple[str, ...] = flag((), "--topics-p", help="Topics to produce to (test-produce).")
    threads: int = flag(1, "--num-test-threads", "-threads", help="Transactions open at one time.")
    partitions: int | None = flag(None, "--partitions", "-np", help="Create --topics-p with so many partitions.")
    subscription_type: str = flag("Shared", "--subscription-type", "-st", help=f"One of {', '.join(TYPES)}.")
    subscription_position: str = flag("Earliest", "--subscription-position", "-sp", help="Latest or Earliest.")
    txn_timeout: int = flag(5, "--txn-timeout", "-tto", help="Seconds until a transaction is aborted.")
    number_txn: int = flag(0, "--number-txn", "-ntxn", help="Transactions in all; 0: without end.")
    produced: int = flag(1, "--numMessage-perTransaction-produce", "-nmp", help="Messages produced in each.")
    consumed: int = flag(1, "--numMessage-perTransaction-consume", "-nmc", help="Messages acknowledged in each.")
    txn_disable: bool = flag(False, "--txn-disable", help="Do the same without transactions.")
    abort: bool = flag(False, "-abort", help="Abort the transactions.")
    txn_rate: float = flag(0.0, "-txnRate", help="Transactions opened per second; 0: no limit.")

    def check(self) -> None:
        super().check()
        if self.threads < 1 or self.txn_timeout < 1 or self.produced < 0 or self.consumed < 0:
            raise FlagsError("--num-test-threads and --txn-timeout must be above 0, numbers of messages not below 0")
        if self.abort and self.txn_disable:
            raise FlagsError("-abort needs transactions, and --txn-disable is given")
