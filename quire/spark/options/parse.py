"""Parsing and checking of the options of `format("quire")`, before anything is opened. Pure.

Which options there are is in `table`. A wrong one ends the query where it is made, with the option's name, what was
given and what to do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from quire.spark.errors import OptionError
from quire.spark.limits import Limits
from quire.spark.offsets import EARLIEST, LATEST, Boundary
from quire.spark.options.boundaries import boundaries
from quire.spark.options.foreign import FOREIGN
from quire.spark.options.reading import (
    ONLY_DECODED,
    TRIGGER_DELAY_MS,
    CredentialOptions,
    DecodeOptions,
    authentication,
    decode_options,
    prefixed_subscription,
    trigger_delay_ms,
)
from quire.spark.options.table import OF_SPARK, OPTIONS, Use
from quire.spark.options.values import Given
from quire.spark.options.writing import ENCODINGS, chunking, pairs, record_name
from quire.spark.topics import TopicsPattern, full_name
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import check_subscription_name
from quire.world.tls_options import TlsOptions

COLUMN_NAMES = (
    "__key",
    "value",
    "__topic",
    "__partition",
    "__messageId",
    "__ledger",
    "__entry",
    "__batch",
    "__publishTime",
    "__eventTime",
    "__properties",
)
"""Columns of the source, in order."""
ON_REQUEST = ("__orderingKey", "__schemaVersion")
"""Columns that exist only where the option `columns` names them."""

ReadVia = Literal["auto", "broker", "bookies"]
READ_VIAS: tuple[str, ...] = get_args(ReadVia)

_OPTIONS = {option.name: option for option in OPTIONS}
OF_SCHEMA = frozenset(
    name
    for name in _OPTIONS
    if name.startswith(("tls", "auth", "topic"))
    or name
    in ("service.url", "admin.url", "operationTimeoutMs", "columns", "includeHeaders", "decode", "schemaVersion")
    or name in ("onDecodeError", "deadLetterTopic")
)
"""Options that the schema of a read depends on."""
TLS_SCHEME = "pulsar+ssl://"
SERVICE_PORT, SERVICE_PORT_TLS = 6650, 6651
ADMIN_PORT, ADMIN_PORT_TLS = 8080, 8443
COMPRESSIONS = ("none", "lz4", "zlib", "zstd", "snappy")
APPLICATION_LENGTH_MAX = 200
VERSION_MAX = (1 << 28) - 1
"""Largest batch number in a sequence id; see quire.spark.sink.sequences."""
HASHING_SCHEMES = ("JavaStringHash", "Murmur3_32Hash", "BoostHash")

_NAMES = {name.lower(): option.name for option in OPTIONS for name in (option.name, *option.aliases)}
_HOST = re.compile(r"(?P<host>\[[0-9a-fA-F:.%]+\]|[^\s:/,\[\]@?#]+)(?::(?P<port>\d{1,5}))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Checked options; plain data that pickles. Options that `use` does not have are at their defaults."""

    use: Use
    service_url: str = "pulsar://127.0.0.1:6650"
    admin_url: str = "http://127.0.0.1:8080"
    tls: TlsOptions = field(default_factory=TlsOptions)
    authentication: CredentialOptions = field(default_factory=CredentialOptions)
    topics: tuple[str, ...] = ()
    """Full names, each once, as given; () with a pattern, and for a sink."""
    topics_pattern: TopicsPattern | None = None
    starting: Boundary = EARLIEST
    ending: Boundary = LATEST
    messages_max: int | None = None
    """Maximum messages of one trigger."""
    bytes_max: int | None = None
    """Maximum bytes of one trigger."""
    messages_min: int | None = None
    """Minimum messages of one trigger ..."""
    trigger_delay_ms: int = TRIGGER_DELAY_MS
    """... and how long it is waited for."""
    min_partitions: int | None = None
    task_entries_max: int | None = None
    """Maximum entries of one task."""
    fail_on_data_loss: bool = True
    subscription: str = ""
    """Name of the subscription that retains the data; "": there is none."""
    columns: tuple[str, ...] = COLUMN_NAMES
    decoding: DecodeOptions = field(default_factory=DecodeOptions)
    poll_timeout_ms: int = 120_000
    operation_timeout_ms: int = 60_000
    chunked_message_hold: int = 1000
    """Entries that the subscription stays behind."""
    topics_refresh_ms: int = 10_000
    read_via: ReadVia = "auto"
    """Source of entries: bookies for closed ledgers and else the broker, or one of both."""
    topic: str = ""
    """Topic of all rows of a sink (full name); "": the column has it."""
    batching: bool = True
    chunking: bool = False
    """Large messages are sent in pieces."""
    encode: str = "none"
    pairs: str = "none"
    """Place of the keys of pairs, inline or separated; none: values are no pairs."""
    record_name: str = "Record"
    compression: str = "none"
    hashing_scheme: str = "JavaStringHash"
    exactly_once: bool = False
    sort_rows: bool = False
    application: str = ""
    """Name of the application of a batch write (txnAppId); "": it has none."""
    version: int = 0
    """Number of a batch write within its application (txnVersion)."""
    trace: str = ""
    """Path of the trace file; "": none."""

    @property
    def limits(self) -> Limits:
        return Limits(messages_max=self.messages_max, bytes_max=self.bytes_max, messages_min=self.messages_min)

    @property
    def is_held(self) -> bool:
        """Return whether a subscription retains the data."""
        return bool(self.subscription)

    @classmethod
    def for_schema(cls, mapping: Mapping[str, str]) -> Options:
        """Parse what the schema of a read depends on, before it is known whether it is a batch read or a stream.

        Args:
            mapping: options by name, as Spark has them; others are not looked at here.

        Returns:
            The options of the columns; with `decode=schema` those of topics and brokers too.

        Raises:
            OptionError: one of these is missing, invalid, or contradicts another.
        """
        known = {_NAMES.get(key.lower(), ""): str(value) for key, value in mapping.items()}
        if known.get("decode", "none").lower() != "schema":
            return cls(use="batch", columns=_columns(Given(known)))
        return cls.parse({key: value for key, value in known.items() if key in OF_SCHEMA}, use="batch")

    @classmethod
    def parse(cls, mapping: Mapping[str, str], *, use: Use) -> Options:
        """Parse and check the options.

        Args:
            given: options by name, as Spark has them.
            use: what they are for: a batch read, a stream or a sink.

        Returns:
            The checked options.

        Raises:
            OptionError: an option is missing, unknown, invalid, or contradicts another.
        """
        given = Given(_known(mapping, use))
        service_url, first_host = _service_url(given)
        timeout_ms, trace = given.integer("operationTimeoutMs", 60_000, 1), given.text("trace")
        credentials = authentication(given)
        if use == "write":
            exactly_once, application = _exactly_once(given)
            return cls(
                use=use,
                service_url=service_url,
                admin_url=_admin_url(given, first_host, tls=service_url.startswith(TLS_SCHEME)),
                tls=_tls(given),
                authentication=credentials,
                operation_timeout_ms=timeout_ms,
                topic=_sink_topic(given),
                batching=given.boolean("batching", True),
                chunking=chunking(given),
                encode=given.choice("encode", "none", ENCODINGS),
                pairs=pairs(given),
                record_name=record_name(given),
                compression=given.choice("compression", "none", COMPRESSIONS),
                hashing_scheme=given.choice("hashingScheme", "JavaStringHash", HASHING_SCHEMES),
                exactly_once=exactly_once,
                sort_rows=given.boolean("sortRows", False),
                application=application,
                version=given.integer("txnVersion", 0, 0),
                trace=trace,
            )
        topics, pattern = _topics(given)
        starting, ending = boundaries(given, use)
        return cls(
            use=use,
            service_url=service_url,
            admin_url=_admin_url(given, first_host, tls=service_url.startswith(TLS_SCHEME)),
            tls=_tls(given),
            authentication=credentials,
            topics=topics,
            topics_pattern=pattern,
            starting=starting,
            ending=ending,
            messages_max=given.optional_integer("maxMessagesPerTrigger", 1),
            bytes_max=given.size("maxBytesPerTrigger"),
            messages_min=given.optional_integer("minMessagesPerTrigger", 1),
            trigger_delay_ms=trigger_delay_ms(given),
            task_entries_max=given.optional_integer("maxEntriesPerTask", 1),
            min_partitions=given.optional_integer("minPartitions", 1),
            fail_on_data_loss=given.boolean("failOnDataLoss", True),
            subscription=_subscription(given, use, topics, pattern),
            columns=_columns(given),
            decoding=decode_options(given, topics, pattern),
            poll_timeout_ms=given.integer("pollTimeoutMs", 120_000, 1),
            operation_timeout_ms=timeout_ms,
            chunked_message_hold=given.integer("chunkedMessageHold", 1000, 1),
            topics_refresh_ms=given.integer("topicsRefreshMs", 10_000, 0),
            read_via=cast("ReadVia", given.choice("readVia", "auto", READ_VIAS)),
            trace=trace,
        )


def canonical_name(key: str) -> str:
    """Return the name of an option in the documentation, given in any case or by an alias; `key` if it is unknown."""
    return _NAMES.get(key.lower(), key)


def _known(mapping: Mapping[str, str], use: Use) -> dict[str, str]:
    """Return the options by their canonical names; refuse unknown ones, and ones of another use."""
    found: dict[str, str] = {}
    spelt: dict[str, str] = {}
    for key, value in mapping.items():
        name = _NAMES.get(key.lower())
        if name is None:
            if key.lower() in OF_SPARK:
                continue
            raise OptionError(key, _shown(key, value), _unknown(key.lower()))
        if name in found:
            raise OptionError(
                name, _shown(name, value), f"it is given twice, as {spelt[name]!r} and {key!r}: remove one"
            )
        if use not in _OPTIONS[name].uses:
            raise OptionError(name, _shown(name, value), _misplaced(name, use))
        found[name], spelt[name] = str(value), key
    return found


_SECRET = re.compile(r"auth|token|secret|passw|credential|jaas|sasl", re.IGNORECASE)


def _shown(key: str, value: object) -> str | None:
    """Return the value of an option for an error; None if it may be a credential."""
    return None if _SECRET.search(key) else str(value)


def _unknown(key: str) -> str:
    for foreign in FOREIGN:
        name = foreign.name.lower()
        if key == name or (name.endswith("*") and key.startswith(name[:-1])):
            return foreign.remedy
    near = difflib.get_close_matches(key, _NAMES, n=1, cutoff=0.5)
    return "there is no such option" + (f"; did you mean {_NAMES[near[0]]!r}?" if near else "")


def _misplaced(name: str, use: Use) -> str:
    if use == "write":
        return "it is for reading: leave it out of a sink"
    if _OPTIONS[name].uses == ("write",):
        return "it is for writing: leave it out of a source"
    return (
        "a stream has no end: leave it out, or use spark.read; to read up to now and stop, use "
        "trigger(availableNow=True)"
    )


# Addresses of the brokers


def _service_url(given: Given) -> tuple[str, str]:
    """Return the URL, every host with its port, and the first host."""
    text = given.text("service.url", "pulsar://127.0.0.1:6650")
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in ("pulsar", "pulsar+ssl"):
        raise given.refuse("service.url", f"give pulsar://host:{SERVICE_PORT} or {TLS_SCHEME}host:{SERVICE_PORT_TLS}")
    usual = SERVICE_PORT if scheme == "pulsar" else SERVICE_PORT_TLS
    matches = [_HOST.fullmatch(part.strip()) for part in rest.removesuffix("/").split(",")]
    hosts = [(match["host"], int(match["port"] or usual)) for match in matches if match is not None]
    if len(hosts) < len(matches) or not all(0 < port < 1 << 16 for _, port in hosts):
        raise given.refuse("service.url", f"give {scheme}://host:{usual}, more hosts comma-separated")
    return f"{scheme}://" + ",".join(f"{host}:{port}" for host, port in hosts), hosts[0][0]


def _admin_url(given: Given, first_host: str, *, tls: bool) -> str:
    usual = f"https://{first_host}:{ADMIN_PORT_TLS}" if tls else f"http://{first_host}:{ADMIN_PORT}"
    text = given.text("admin.url", usual).removesuffix("/")
    scheme, _, rest = text.partition("://")
    match = _HOST.fullmatch(rest)
    if scheme not in ("http", "https") or match is None or not 0 < int(match["port"] or 80) < 1 << 16:
        raise given.refuse(
            "admin.url", f"give http://host:{ADMIN_PORT} or https://host:{ADMIN_PORT_TLS}, without a path"
        )
    return text


def _tls(given: Given) -> TlsOptions:
    """Return the files and rules of TLS; they have no effect on URLs without it."""
    certificate, key = given.text("tlsCertificateFilePath"), given.text("tlsKeyFilePath")
    if bool(certificate) != bool(key):
        missing = "tlsKeyFilePath" if certificate else "tlsCertificateFilePath"
        raise OptionError(missing, "", "a certificate needs its key, and a key its certificate: give both or none")
    return TlsOptions(
        certificate_file=certificate,
        key_file=key,
        trust_file=given.text("tlsTrustCertsFilePath"),
        check_host=given.boolean("tlsHostnameVerificationEnable", True),
        verify=not given.boolean("tlsAllowInsecureConnection", False),
    )


# Topics


IN_A_CATALOG = (
    ". For a table of the catalog give the options in the query, because Spark passes those of CREATE TABLE to no"
    " read: SELECT ... FROM t WITH (topic='x'), or spark.read.options(...).table('t')"
)
_ONE_OF = ("topic", "topics", "topicsPattern")


def _topics(given: Given) -> tuple[tuple[str, ...], TopicsPattern | None]:
    named = [name for name in _ONE_OF if name in given]
    if len(named) != 1:
        what = "none is given" if not named else f"{' and '.join(named)} are given"
        more = "" if named else IN_A_CATALOG
        remedy = f"give exactly one of {', '.join(_ONE_OF)}; {what}{more}"
        raise OptionError(named[0] if named else "topic", None, remedy)
    name = named[0]
    try:
        if name == "topicsPattern":
            return (), TopicsPattern.parse(given.text(name))
        texts = given.names(name) if name == "topics" else [given.text(name)]
        return tuple(dict.fromkeys(full_name(text) for text in texts)), None
    except OptionError:
        raise
    except ValueError as error:
        raise given.refuse(name, str(error)) from None


def _columns(given: Given) -> tuple[str, ...]:
    if "columns" not in given:
        with_properties = given.boolean("includeHeaders", True)
        return COLUMN_NAMES if with_properties else tuple(name for name in COLUMN_NAMES if name != "__properties")
    if "includeHeaders" in given:
        raise given.refuse("includeHeaders", "columns is given too: name __properties there, or leave it out")
    names = given.names("columns")
    decoded = ONLY_DECODED if given.text("decode").lower() == "schema" else ()
    known = (*COLUMN_NAMES, *ON_REQUEST, *decoded)
    for name in names:
        if name in ONLY_DECODED and name not in known:
            raise given.refuse("columns", f"{name} is for decode=schema: set that, or leave it out")
        if name not in known:
            raise given.refuse("columns", f"there is no column {name!r}; there are {', '.join(known)}")
    if len(set(names)) < len(names):
        raise given.refuse("columns", "name each column once")
    return tuple(names)


def _subscription(given: Given, use: Use, topics: tuple[str, ...], pattern: TopicsPattern | None) -> str:
    """Return the name of the subscription that retains the data; "": there is none."""
    prefixed = prefixed_subscription(given, use, topics, pattern)
    named = "subscription" in given or bool(prefixed)
    default = "subscription" if named or use == "stream" else "none"
    hold = given.choice("hold", default, ("subscription", "none"))
    if hold == "none":
        if named:
            raise given.refuse("subscription", "hold=none excludes a subscription: remove one of the two")
        return ""
    if not named:
        raise OptionError(
            "subscription",
            None,
            "give a name, one for each query and the same over restarts: it keeps what was not read yet from being"
            " deleted. Without it (hold=none) only the topic's retention does",
        )
    try:
        return check_subscription_name(prefixed or given.text("subscription"))
    except InvalidNameError as error:
        raise given.refuse("subscriptionPrefix" if prefixed else "subscription", str(error)) from None


def _exactly_once(given: Given) -> tuple[bool, str]:
    """Return whether the sink writes exactly once, and the application of a batch write ("": none)."""
    exactly_once = given.boolean("exactlyOnce", False)
    for name in ("sortRows", "txnAppId", "txnVersion"):
        if name in given and not exactly_once:
            raise given.refuse(name, "it is for exactlyOnce=true: set that, or remove this")
    if ("txnAppId" in given) != ("txnVersion" in given):
        missing = "txnVersion" if "txnAppId" in given else "txnAppId"
        raise OptionError(missing, None, "txnAppId and txnVersion name a write together: give both or none")
    application = given.text("txnAppId")
    if "txnAppId" in given and not 0 < len(application) <= APPLICATION_LENGTH_MAX:
        raise given.refuse("txnAppId", f"give a name of 1 to {APPLICATION_LENGTH_MAX} characters")
    if given.integer("txnVersion", 0, 0) > VERSION_MAX:
        raise given.refuse("txnVersion", f"give a whole number from 0 to {VERSION_MAX}")
    return exactly_once, application


def _sink_topic(given: Given) -> str:
    if "topic" not in given:
        return ""
    try:
        return full_name(given.text("topic"))
    except ValueError as error:
        raise given.refuse("topic", str(error)) from None
