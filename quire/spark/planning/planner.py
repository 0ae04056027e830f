"""Driver side of a source: partitions, ends of their logs, the range of each trigger, and the hold.

One Planner lives in the process that plans: for a stream as long as the query runs, for a batch read until its ranges
are made. Nothing is connected before the first question. Decisions are in ranges.py, logs.py and limits.py; here the
brokers are asked, passing errors are tried again up to a deadline, and the answers are kept.

The order of Spark's calls differs: a new query asks for its first offset, twice; a restarted one never does, and begins
with `plan` or `latest`. So the hold is attached in the first call that gives the position of the query.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from quire.client.message_id import MessageId
from quire.spark.admin import Admin
from quire.spark.cluster import Cluster, sample
from quire.spark.limits import MESSAGES_PER_ENTRY_UNKNOWN, Limits
from quire.spark.offsets import Boundary, Offsets, Place
from quire.spark.options.parse import Options
from quire.spark.planning.fragments import Fragments
from quire.spark.planning.hold import Hold
from quire.spark.planning.logs import LostEntries, PartitionLog
from quire.spark.planning.partition_logs import PartitionLogs
from quire.spark.planning.ranges import TopicRange, given_by_partition, next_end, resolve, split, topic_range
from quire.spark.runtime import credentials_of
from quire.spark.trace import Trace

_log = logging.getLogger(__name__)

START_TRIES = 5
"""Attempts to find the first offset again because its data was deleted before it was held."""


class Planner:
    """Planner of one query; see the module. Blocking. Errors are SparkSourceError with texts for users."""

    def __init__(
        self,
        options: Options,
        *,
        admin: Admin | None = None,
        trace: Trace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._trace = trace or Trace(options.trace)
        self._admin = admin or Admin(
            options.admin_url,
            timeout_s=options.operation_timeout_ms / 1000,
            tls=options.tls,
            credentials=credentials_of(options),
        )
        self._cluster = Cluster(options)
        self._known = PartitionLogs(options, self._admin, self._cluster)
        self._fragments = Fragments(options, self._admin)
        self._hold: Hold | None = None
        self._seen: dict[str, PartitionLog] = {}
        """The logs at a time when no unread entry was missing (or the loss was reported): evidence that a ledger
        missing since had no unread entries."""
        self._made: set[str] = set()
        """Partitions whose subscription this process created or moved back, until the data it retains was seen to
        exist. Before that its position proves nothing."""
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._reached = Offsets()
        self._per_entry: dict[str, tuple[Place, float]] = {}
        self._warned: set[tuple[str, Place]] = set()
        self._clock = clock
        self._waits_since: float | None = None
        """Time at which fewer messages than the minimum were first seen; None: no trigger waits."""

    # Calls of a stream

    def initial(self) -> Offsets:
        """Return the start of a new query. Held on return, and the same at every call."""
        if self._initial is None:
            self._initial = self._begin()
        return self._initial

    def prepare_available_now(self) -> Offsets:
        """Plan nothing behind the present ends from now on."""
        self._known.refresh()
        self._target = self._known.ends()
        return self._target

    def latest(self, start: Offsets, limits: Limits) -> Offsets:
        """Return the end of the trigger that begins at `start`; `start` itself if there is nothing to read."""
        self._known.refresh(start)
        self._look_for_loss(start)
        self._secure({name: start.get(name) or log.earliest() for name, log in self._known.logs.items()})
        counts_messages = limits.messages_max is not None or limits.messages_min is not None
        per_entry = self._sampled(start) if counts_messages else {}
        if self._waits(start, limits, per_entry):
            return start
        end = next_end(
            self._known.logs,
            start,
            messages_max=limits.messages_max,
            bytes_max=limits.bytes_max,
            per_entry=per_entry,
            target=self._target,
        )
        self._reached = end
        return end

    def _waits(self, start: Offsets, limits: Limits, per_entry: Mapping[str, float]) -> bool:
        """Return whether there are unread messages, but too few of them for a trigger, and not for too long."""
        messages = sum(
            log.count_between(start.get(name) or log.earliest(), log.end()) * per_entry.get(name, 1.0)
            for name, log in self._known.logs.items()
        )
        if self._target is not None or not 0 < messages < (limits.messages_min or 0):
            self._waits_since = None
            return False
        now = self._clock()
        if self._waits_since is None:
            self._waits_since = now
        if (now - self._waits_since) * 1000 < self._options.trigger_delay_ms:
            return True
        self._waits_since = None
        return False

    def _look_for_loss(self, start: Offsets) -> None:
        """Check for missing entries, also outside planning: each check builds on the one before, and an idle topic is
        never planned."""
        held = self._hold.partitions if self._hold else frozenset()
        for name, place in start.items():
            log = self._known.logs.get(name)
            if log is None:
                self._lose(LostEntries.topic(name, place))
            else:
                if lost := log.missing_before(place, mark_delete=self._mark_of(name), seen=self._seen.get(name)):
                    self._lose(lost)
                elif name in held:
                    self._made.discard(name)
                self._seen[name] = log

    def report(self) -> dict[str, object]:
        """Return the ends of all partitions, with the entries between the last plan and them, for Spark's progress."""
        if not self._known.logs:
            self._known.refresh()
        ends = self._known.ends()
        logs = self._known.logs
        behind = sum(
            logs[name].count_between(self._reached.get(name) or logs[name].earliest(), ends[name]) for name in ends
        )
        return {**ends.to_json_dict(), "behind": behind}

    def plan(self, start: Offsets, end: Offsets) -> list[TopicRange]:
        """Return the tasks of [start, end). Missing entries raise DataLossError or log a warning, depending on the
        option."""
        if not self._known.covers(end):
            self._known.refresh(end)
        self._secure({name: start.get(name) or self._earliest(name) for name in end})
        self._reached = end
        tasks: list[TopicRange] = []
        for name, stop in end.items():
            log = self._known.logs.get(name)
            if log is None:
                if start.get(name) != stop:
                    self._lose(LostEntries.topic(name, start.get(name) or stop))
                continue
            task = self._task(log, start.get(name) or log.earliest(), stop)
            if task is not None:
                tasks.append(task)
        return self._split(tasks)

    def commit(self, end: Offsets) -> None:
        """Move the hold behind everything before `end`, which is done and will not be read again. Never fails."""
        if self._hold is None:
            return
        behind = self._options.chunked_message_hold
        marks = {}
        for name, place in end.items():
            log = self._known.logs.get(name)
            if log is not None:
                marks[name] = log.mark_delete_for(log.hold_at(place, behind))
        try:
            moved = self._cluster.call(self._hold.move, marks)
        except Exception as error:  # the next commit covers it; the query continues
            _log.warning("subscription %r was not moved: %r; the next commit does it", self._hold.name, error)
            return
        # From here on its position shows what the broker may have deleted.
        self._made -= moved.keys()
        self._trace.note("hold-moved", marks=moved)

    # Call of a batch read

    def batch(self, task_bytes_max: int | None = None) -> list[TopicRange]:
        """Return the tasks of a batch read: the current log between its two boundaries.

        `task_bytes_max`: approximate maximum of stored bytes of one task, which replaces the limits of the options."""
        self._known.refresh()
        start = self._resolve("startingOffsets", self._options.starting)
        if self._options.is_held:
            self._make(start)
            self._known.refresh()
        end = self._resolve("endingOffsets", self._options.ending)
        self._trace.note("batch", start=start.to_json_dict(), end=end.to_json_dict())
        tasks = [self._task(self._known.logs[name], place, end[name]) for name, place in start.items()]
        found = [task for task in tasks if task is not None]
        if task_bytes_max is None:
            return self._split(found)
        parts = [part for task in found for part in self._cut(task, task_bytes_max)]
        return self._fragments.attach(parts, self._known.logs)

    def close(self) -> None:
        """Release everything, including subscriptions, which still retain the data. Not needed before a process
        ends."""
        hold, self._hold = self._hold, None
        try:
            if hold is not None:
                self._cluster.call(hold.detach)
        finally:
            self._cluster.close()
            self._admin.close()

    # The hold

    def _begin(self) -> Offsets:
        """Find the start, hold it, and check whether its data still existed when it was held."""
        explicit = self._options.starting.kind == "places"
        for _ in range(START_TRIES):
            self._known.refresh()
            before = self._known.logs
            start = self._resolve("startingOffsets", self._options.starting)
            self._secure(start)
            if not self._options.is_held:
                for name, place in start.items():
                    if (lost := before[name].missing_before(place)) is not None:
                        self._lose(lost)
                self._seen |= before
                return start
            self._known.refresh(start)
            went = [
                lost
                for name, place in start.items()
                if (log := self._known.logs.get(name)) and (lost := log.missing_before(place, seen=before[name]))
            ]
            if not went:
                self._seen |= self._known.logs
                self._made.clear()
            if not went or explicit:
                return start
        raise went[0].error()

    def _secure(self, places: Mapping[str, Place]) -> None:
        """Hold the partitions that are not held yet, so that data at their place and behind it is retained."""
        if not self._options.is_held:
            return
        held = self._hold.partitions if self._hold else frozenset()
        new = {name: place for name, place in places.items() if name in self._known.logs and name not in held}
        if not new:
            return
        self._make(new)
        if self._hold is None:
            self._hold = Hold(self._cluster.client, self._options.subscription)
        starts = {name: self._held_at(name, place) for name, place in new.items()}
        marks = self._cluster.call(self._hold.attach, starts)
        back = {}
        for name, (ledger_id, entry_id) in marks.items():
            log, place = self._known.logs[name], new[name]
            ahead = log.canonical(Place(ledger_id, entry_id + 1))
            if ledger_id >= 0 and log.count_between(place, ahead):
                back[name] = starts[name]
        self._trace.note("hold-attached", marks=marks, made=sorted(self._made & new.keys()), back=back)
        if back:
            name, place = next(iter(back.items()))
            _log.warning(
                "subscription %r was behind the start of the query on %d partitions (on %s at %s:%s), moving it "
                "back to %s",
                *(self._hold.name, len(back), name, *marks[name], place),
            )
            self._cluster.call(self._hold.seek, back)
            self._made |= back.keys()

    def _held_at(self, name: str, place: Place) -> Place:
        """Return the next entry of a subscription that holds for `place`: one entry before it.

        So the ledger which `place` ends stays, and a missing one was not read to its end."""
        return self._known.logs[name].hold_at(place, 1)

    def _make(self, places: Mapping[str, Place]) -> None:
        """Create a missing subscription, so that it holds for `place`; durable on return.

        Data that is gone already is reported first: afterwards the subscription would look as if it had retained it."""
        for name, place in places.items():
            if name not in self._known.marks:
                lost = self._known.logs[name].missing_before(place)
                if lost is not None:
                    self._lose(lost)
                position = MessageId(*self._held_at(name, place)[:2])
                if self._admin.create_subscription(name, self._options.subscription, position):
                    self._made.add(name)

    def _mark_of(self, name: str) -> tuple[int, int] | None:
        """Return the position of the subscription, if that proves anything."""
        return None if name in self._made else self._known.marks.get(name)

    # Places

    def _resolve(self, option: str, boundary: Boundary) -> Offsets:
        logs = self._known.logs
        if boundary.kind == "latest" and self._target is not None:
            return Offsets({name: self._target.get(name) or log.earliest() for name, log in logs.items()})
        if boundary.kind == "timestamp":
            return resolve(option, boundary, logs, self._known.places_at(dict.fromkeys(logs, boundary.timestamp_ms)))
        if boundary.kind == "timestamps":
            option = f"{option}ByTimestamp"
            given = given_by_partition(option, boundary, logs)
            times = {name: time_ms for name, time_ms in given.items() if isinstance(time_ms, int)}
            return resolve(option, boundary, logs, self._known.places_at(times))
        return resolve(option, boundary, logs)

    def _earliest(self, name: str) -> Place:
        log = self._known.logs.get(name)
        return Place(0, 0) if log is None else log.earliest()

    # Tasks

    def _task(self, log: PartitionLog, start: Place, end: Place) -> TopicRange | None:
        task, lost = topic_range(
            log,
            start,
            end,
            earlier_max=self._options.chunked_message_hold,
            mark_delete=self._mark_of(log.name),
            seen=self._seen.get(log.name),
        )
        if lost is not None:
            self._lose(lost)
        self._seen[log.name] = log
        return task

    def _split(self, tasks: Sequence[TopicRange]) -> list[TopicRange]:
        options = self._options
        parts = split(
            tasks,
            options.min_partitions,
            entries_max=options.task_entries_max,
            earlier_max=options.chunked_message_hold,
        )
        return self._fragments.attach(parts, self._known.logs)

    def _cut(self, task: TopicRange, bytes_max: int) -> list[TopicRange]:
        """Return pieces of a task that have about `bytes_max` stored bytes each, and at least one entry.

        Pieces of a chunked message may be as far back as the task begins, as if it were not cut."""
        size = sum(size for _, size in self._known.logs[task.partition].pieces(task.ranges))
        entries_max = max(task.entries * bytes_max // max(size, 1), 1)
        earlier_max = task.entries + self._options.chunked_message_hold
        return split([task], None, entries_max=entries_max, earlier_max=earlier_max)

    def _lose(self, lost: LostEntries) -> None:
        """Report data loss: an error, or one warning for each place, depending on the option."""
        if self._options.fail_on_data_loss:
            raise lost.error()
        if (lost.partition, lost.start) not in self._warned:
            self._warned.add((lost.partition, lost.start))
            _log.warning("%s", lost)
            self._trace.note("data-loss", text=str(lost))

    def _sampled(self, start: Offsets) -> dict[str, float]:
        """Return the messages per entry of each partition with unread entries, from its next entries.

        A partition that does not answer has those of its last answer, and is asked again by the next trigger."""
        wanted = {}
        for name, log in self._known.logs.items():
            place = start.get(name) or log.earliest()
            if log.count_between(place, log.end()) and self._per_entry.get(name, (None, 0))[0] != place:
                wanted[name] = place
        if wanted:
            for name, found in self._cluster.ask(sample, wanted).items():
                self._per_entry[name] = (wanted[name], found)
        known = {name: found for name, (_, found) in self._per_entry.items()}
        return {**dict.fromkeys(wanted, MESSAGES_PER_ENTRY_UNKNOWN), **known}
