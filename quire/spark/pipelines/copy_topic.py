"""Copy of topics to a topic, each message once, also after crashes.

A copy has the key, the value (or none), the properties, the event time and the ordering key of its message. Messages of
a key keep their order. It has a publish time, a producer and a position of its own, and no schema version: the values
are copied as bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from quire.service.programs.command_line import command_app, run_app
from quire.spark.pipelines import running
from quire.spark.pipelines.progress import Display
from quire.spark.pipelines.to_topic import (
    AtLeastOnce,
    Pipeline,
    RunTotals,
    SinkSettings,
    TargetFlags,
    To,
    run,
    stream_to_topic,
)

COLUMNS = ("__key", "value", "__eventTime", "__properties", "__orderingKey")


def pipeline(*, keep_partitions: bool = False) -> Pipeline:
    """Return the pipeline. `keep_partitions`: write each message to the partition of the same number."""
    columns = (*COLUMNS, "__partition") if keep_partitions else COLUMNS
    return Pipeline(name="copy-topic", columns=",".join(columns), rows=lambda stream: stream, totals=RunTotals())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pipeline; return the exit code.

    0: it ended as requested; 1: it failed on the way; 2: it could not be started."""
    return run_app(program(), argv, name="copy-topic")


def program() -> typer.Typer:
    """Return the pipeline as a program: that of scripts/pipelines and of `quire pipeline`."""
    return command_app(command, "Copy topics to a topic, each message once, even after crashes and restarts.")


def command(
    checkpoint: running.Checkpoint,
    to: To,
    keep_partitions: Annotated[
        bool,
        typer.Option(
            "--keep-partitions", help="Write each message to the partition of the same number, instead of by its key."
        ),
    ] = False,
    at_least_once: AtLeastOnce = False,
    service_url: running.ServiceUrl = running.SERVICE_URL,
    admin_url: running.AdminUrl = None,
    topic: running.Topic = None,
    topics: running.Topics = None,
    topics_pattern: running.TopicsPattern = None,
    subscription: running.Subscription = None,
    trigger: running.Trigger = running.AVAILABLE_NOW,
    starting_offsets: running.StartingOffsets = None,
    max_messages_per_trigger: running.MaxMessages = None,
    max_bytes_per_trigger: running.MaxBytes = None,
    min_partitions: running.MinPartitions = None,
    settings: running.Settings = None,
    sink: SinkSettings = None,
    verbose: running.Verbose = False,
    master: running.Master = None,
    conf: running.Conf = None,
) -> int:
    source = running.SourceFlags(
        service_url=service_url,
        admin_url=admin_url,
        topic=topic,
        topics=topics,
        topics_pattern=topics_pattern,
        subscription=subscription,
        starting_offsets=starting_offsets,
        max_messages_per_trigger=max_messages_per_trigger,
        max_bytes_per_trigger=max_bytes_per_trigger,
        min_partitions=min_partitions,
        settings=settings,
    )
    given = TargetFlags(
        source=source,
        checkpoint=checkpoint,
        to=to,
        sink=sink,
        at_least_once=at_least_once,
        trigger=running.trigger(trigger),
        verbose=verbose,
        master=master,
        conf=conf,
    )
    return run("copy-topic", given, lambda _: pipeline(keep_partitions=keep_partitions), {})


def copy_topic(
    session: Any,
    source: Mapping[str, str],
    sink: Mapping[str, str],
    checkpoint: Path,
    *,
    keep_partitions: bool = False,
    trigger: str = running.AVAILABLE_NOW,
    display: Display | None = None,
    stop: running.Stop | None = None,
) -> RunTotals:
    """Copy with an existing session, until the query ends; return the totals of this run.

    Takes options of source and sink (with `exactlyOnce`), and a value of `running.trigger`. Raises PipelineError if the
    query fails."""
    made = pipeline(keep_partitions=keep_partitions)
    stream_to_topic(session, made, source, sink, checkpoint, trigger=trigger, display=display, stop=stop)
    return made.totals
