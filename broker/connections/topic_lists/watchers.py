"""Watchers of topic lists: WATCH_TOPIC_LIST, WATCH_TOPIC_UPDATE, WATCH_TOPIC_LIST_CLOSE.

A watcher has an id of its connection. Its client gets the topics that match its pattern, or none if the hash that it
sent is that of the list, and then what is added and removed. It ends with its connection; a client that connects again
sends the hash of its list.
Source: the original's TopicListService and ServerCnx.handleCommandWatchTopicList.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker import replies
from broker.connections.connection import Connection
from broker.connections.topic_lists.namespaces import TopicListWatching
from broker.connections.topic_lists.views import Update, View
from broker.errors import InvalidTopicError, NotAllowedError, ServiceNotReadyError
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import NamespaceName

WATCHERS_MAX: Final = 1000
"""Watchers of one connection."""


class TopicListWatcher:
    """One watcher of a connection."""

    __slots__ = ("_connection", "_is_begun", "_watching", "namespace", "pattern", "watcher_id")

    def __init__(self, connection: Connection, watching: TopicListWatching, request: pb.CommandWatchTopicList) -> None:
        """Take its request. Raises InvalidTopicError."""
        try:
            self.namespace = NamespaceName.parse(request.namespace)
        except InvalidNameError as error:
            raise InvalidTopicError(str(error)) from error
        self.pattern = request.topics_pattern
        self.watcher_id = request.watcher_id
        self._connection = connection
        self._watching = watching
        self._is_begun = False

    async def begin(self, request: pb.CommandWatchTopicList) -> None:
        """Answer the list, and from then on its changes."""
        await self._watching.add(self.namespace, self.pattern, self._told, partial(_answer, request), self._answered)
        if self._connection.closed or self._connection.watchers.get(self.watcher_id) is not self:
            self._watching.remove(self.namespace, self.pattern, self._told)
        else:
            self._is_begun = True

    def _answered(self, frame: bytes) -> None:
        if self._connection.watchers.get(self.watcher_id) is self:
            self._connection.write((frame,))

    def _told(self, update: Update) -> None:
        frame = replies.topic_list_update(self.watcher_id, update.added, update.removed, update.topics_hash)
        self._connection.write((frame,))

    def withdraw(self) -> None:
        """End it; see `Pending`. One that has not begun ends when it does."""
        self._connection.watchers.pop(self.watcher_id, None)
        if self._is_begun:
            self._is_begun = False
            self._watching.remove(self.namespace, self.pattern, self._told)


class Watchers:
    """Requests for watchers."""

    def __init__(self, watching: TopicListWatching) -> None:
        self._watching = watching

    async def watch(self, connection: Connection, command: pb.BaseCommand) -> None:
        """Make a watcher. One of an id that is in use replaces the former, whose client has forgotten it."""
        request = command.watchTopicList
        options = connection.context.options
        refused = "Unable to create topic list watcher: "
        if not options.pattern_evaluation:
            raise NotAllowedError(f"{refused}Evaluating subscription patterns is disabled.")
        if len(request.topics_pattern) > options.pattern_length_max:
            raise NotAllowedError(f"{refused}Pattern longer than maximum: {options.pattern_length_max}")
        watchers = connection.watchers
        if request.watcher_id not in watchers and len(watchers) >= WATCHERS_MAX:
            raise NotAllowedError(f"{refused}the connection has {WATCHERS_MAX}")
        watcher = TopicListWatcher(connection, self._watching, request)
        if (former := watchers.get(request.watcher_id)) is not None:
            former.withdraw()
        watchers[request.watcher_id] = watcher
        try:
            await watcher.begin(request)
        except BaseException:
            if watchers.get(request.watcher_id) is watcher:
                watcher.withdraw()
            raise
        if watchers.get(request.watcher_id) is not watcher:
            raise ServiceNotReadyError("the watcher was closed while it was being created")


def close(connection: Connection, command: pb.BaseCommand) -> None:
    """End a watcher; always succeeds, also for an unknown one. Source: Pulsar's TopicListService, which answers with
    SUCCESS: the Java client waits for that, and with any other answer it never ends the consumer of a pattern."""
    request = command.watchTopicListClose
    if (watcher := connection.watchers.get(request.watcher_id)) is not None:
        watcher.withdraw()
    connection.write((replies.success(request.request_id),))


def _answer(request: pb.CommandWatchTopicList, view: View) -> bytes:
    is_known = request.HasField("topics_hash") and request.topics_hash == view.topics_hash
    names = () if is_known else tuple(view.names)
    return replies.topic_list(request.request_id, request.watcher_id, names, view.topics_hash)
