from collections.abc import Iterable
from typing import Literal, final

from mqstore._append import AppendResult
from mqstore._message import Message
from mqstore._reports import NextRemoval, OpenTransactions, ResendReport, Trace
from mqstore._scan import RecordBatch
from mqstore._topics import Topic
from mqstore._types import _Errors, _Time

@final
class Inspect:
    """The files of a store and their bytes: `Store.inspect` is one.

    `segments`, `index_files` and `kept_elsewhere` list files. `dump`, `dump_entry` and `dump_key` decode bytes field by
    field, whole or damaged.
    """
    def segments(self) -> RecordBatch:
        """Returns the segments of the log, a row each, ascending: `segment` (int64: the physical offset at which it starts,
        its name), `bytes` (int64: those that belong to the log), `sealed` (bool: true if the log continues in a later one),
        `first_store_time` (timestamp[us, UTC]: of its first message). Cheap: reads the first bytes of each segment.
        `usage("segment")` counts its messages.
        """
    def index_files(self) -> RecordBatch:
        """Returns the index files, a row each, oldest first: they show why queries by key are slow or walk the log. Reads them
        whole.

        Columns: `name` (utf8); `slots` and `max_items` (int64: the keys that it has room for), null if its bytes do not
        show it; `items` (int64: keys); `used_slots` (int64); `load` (float64: items a slot); `longest_chain` (int64) and
        `mean_chain` (float64): items in a used slot, which a query for a key of it reads; `first_physical_offset` and
        `last_physical_offset` (int64), `first_store_time` and `last_store_time` (timestamp[us, UTC]) of the messages that
        it indexes, null if it has no item; `whole` (bool): every item can be reached from its slot; `used` (bool): queries
        use it, and do not walk the log for its messages. `whole` is null where `slots` is; `used_slots` and the chains are
        null for a file that is not whole.
        """
    def kept_elsewhere(self) -> RecordBatch:
        """Returns the parts of the store that its broker keeps in files of another format, which are not read; mostly RocksDB
        databases. Cheap: lists some directories.

        Columns: `part` (utf8): `queues`, `keys`, `transactions`, `timers`, `compacted_topics`, `consumer_offsets`,
        `topic_configs` or `group_configs`; `path` (utf8): the directory of these files; `topic` (utf8), null unless the
        part is of one topic; `message` (utf8): what is there, and what is read in its place.
        """
    def dump(self, physical_offset: int) -> RecordBatch:
        """Decodes the bytes at a physical offset, whole or damaged: a row for each field of the record or BLANK there.
        `message_at` reads a message.

        Columns: `file` (utf8), `offset` (int64: the field's first byte in the file), `length` (int64: its bytes), `bytes`
        (binary: the first 256 of them at most), `field` (utf8: its name), `value` (utf8: what it says), `wrong` (utf8: what
        is wrong with it, null if nothing is). Raises `NotFoundError` where no segment is, `OSError` for a file that cannot
        be read.
        """
    def dump_entry(self, topic: str, queue_id: int, queue_offset: int) -> RecordBatch:
        """Decodes the entry of a queue at a queue offset, and after it the record that it leads to.

        Parameters
        ----------
        topic : str
            The topic.
        queue_id : int
            The id of the queue.
        queue_offset : int
            The queue offset of the entry.

        Returns
        -------
        RecordBatch
            Rows as those of `dump`.

        Raises
        ------
        NotFoundError
            No file of the queue has this queue offset.
        UnsupportedFormatError
            As `get`.
        OSError
            A file cannot be read.
        """
    def dump_key(self, topic: str, key: str, *, limit: int = 64) -> RecordBatch:
        """Decodes what the index has of a key: for each index file its slot, and the items of the chain there.

        Parameters
        ----------
        topic : str
            The topic.
        key : str
            The key.
        limit : int, default 64
            The most items of a file, the newest first; items of other keys count, too.

        Returns
        -------
        RecordBatch
            Rows as those of `dump`. The row `item N record` names the message that an item leads to.

        Raises
        ------
        NotFoundError
            There is no index file.
        OSError
            A file cannot be read.
        """

@final
class BrokerState:
    """The settings and positions that the broker of a store keeps in `config/`: `Store.broker` is one."""
    def consumer_offsets(self) -> RecordBatch:
        """Returns the positions of the groups of consumers, as the broker of the store has written them to
        `config/consumerOffset.json` (every 5 s; in the process that writes the store those of its groups are as they are
        now) and, with light queues, to `config/lmqConsumerOffset.json`. A row a queue, ascending: `group` (utf8), `topic`
        (utf8), `queue_id` (int32), `offset` (int64: the queue offset of the message that the group gets next). Where names
        have an `@` in them, the topic is one of the store.

        If a file is missing, empty or damaged, its `.bak` is read, as by a broker, with a `RuntimeWarning`. Another one
        warns if the broker may keep newer offsets in another file. Raises `NotFoundError` if there is no file,
        `CorruptError` if none can be used, `UnsupportedFormatError` if the broker keeps the offsets in RocksDB alone.
        """
    def lag(self) -> RecordBatch:
        """Returns the number of messages that each group of consumers has not consumed yet. A row for each queue of each topic
        that the group has consumed from, ascending: `group`, `topic`, `queue_id` and `offset` as in `consumer_offsets`,
        `offset` null where the broker has none; `min_offset` and `max_offset` (int64) of the queue; `lag` (int64): messages
        of the queue that the group has not consumed, all of them without an offset. The last three are null where the queue
        is not a file of this format (RocksDB, batch consume queue). With an `offset` below `min_offset` messages have
        expired unread; one above `max_offset` comes from another store, or messages were lost.

        Warns and raises as `consumer_offsets`.
        """
    def groups(self) -> RecordBatch:
        """Returns the state of the groups of consumers in their queues, a row each, ascending: `group`, `topic`, `queue_id`,
        `offset`, `min_offset`, `max_offset` and `lag` as in `lag`; `unconsumed_since` (timestamp[us, UTC]): the store time
        of the first message that the group has not consumed, null without a lag and where that message is damaged or lost;
        `consumers` (int32): consumers of the group in this process, and `in_flight` (int64): messages that they have got
        and not acknowledged, both null unless this process writes the store. Reads a message for each queue with a lag.

        Warns and raises as `consumer_offsets`.
        """
    def dead_letters(self, group: str) -> Topic:
        """Returns the dead letters of a group, which its consumers failed on too often: the `Topic` `%DLQ%` and the name of
        the group, empty without dead letters.
        """
    def trace(self, id: str) -> Trace:
        """Returns the trace of a message: each record of it in the log, from its append on, and what became of it. A `Trace`.

        `id` is the unique key of the message, or the offset id of one of its records. Reads the index in each topic, and
        the log once where the index or queues are not whole. Without a unique key the trace has what groups have sent back,
        for which the log is read from the message on, and not the copies of a delayed message.

        Raises `NotFoundError` if no record of the log has the id.
        """
    def next_removal(self) -> NextRemoval | None:
        """Returns the segment that retention removes next, and when: a `NextRemoval`. None if the options of this open keep
        all, and in a writer whose `services` do not run.

        A reader goes by its own options, because it does not know those of the process that writes the store: `open(path,
        config=StoreConfig.from_broker_conf(file), geometry=None)` has those of a broker. It reads the newest segment, and
        the oldest one where its age is near the limit.

        Raises `CorruptError` if a settings file with the progress of groups is damaged, or if the removal waits for a group
        whose progress is lost, and `StoreIOError` for what the system refuses, such as the use of the disk.
        """
    def resend(
        self,
        group: str,
        messages: Message | Iterable[Message] | None = None,
        *,
        errors: _Errors | None = None,
    ) -> ResendReport:
        """Appends dead letters of a group again to the topics that they came from, as their producer would: without the
        properties of the retries, and as if no consumer had failed. The queues of a topic take turns.

        Parameters
        ----------
        group : str
            The name of the group.
        messages : Message or iterable of Message, optional
            The letters. None: those that were not sent again before; the group has progress in its dead
            letters, which then passes them and is durable. After a crash within the call some come
            twice.
        errors : {"raise", "skip"}, optional
            What to do at a letter that was lost or is damaged. None: as in `open`. "skip" passes it,
            and the report names it.

        Returns
        -------
        ResendReport
            The letters that were sent, and those that were not.

        Raises
        ------
        TypeError
            The store is open for reading.
        ValueError
            A message is not a dead letter of the group.
        CorruptError
            A letter is damaged (`errors`). The letters before it were sent.
        StoreError
            As `append`: the letters before it were sent.
        """
    def hand_over(self) -> int:
        """Hands the timers that wait (`append(deliver_at=)`) over to a broker, durably, and returns their number. Call it
        before a broker of 5.x starts on the store.

        Each is appended again at the end of `rmq_sys_wheel_timer`, as a broker does it every two days, `config/timercheck`
        names the first of them, and the timer wheel of an earlier broker is removed: a broker that starts after the close
        of the store delivers each once. This writer delivers no timer any more: those that are appended from now on wait
        for the broker, too. The next writer delivers again, each once. After an error the delivery continues, and a later
        call hands over the rest. A second call returns 0.

        Warns if timers were skipped: lost, damaged, or without a topic. Delayed messages and transactions need no
        hand-over: a close persists their progress.

        Raises `ValueError` in a writer that delivers no timers (`services`), `TypeError` if the store is open for reading,
        `DiskFullError` and `StoreIOError` as `append`.
        """
    def recall(self, timer: AppendResult | Message | str, *, durable: bool | None = None) -> AppendResult:
        """Recalls a timer: it is not delivered. Appends a recall as a broker of 5.3.2 or later does, which this writer and
        brokers from 5.3.2 on honour. A recall of what does not wait any more has no effect.

        Parameters
        ----------
        timer : `AppendResult`, `Message` or str
            The result of `append(deliver_at=..., unique_key=...)`, the message that waits in
            `rmq_sys_wheel_timer`, or the recall handle that a broker has given to its producer. The
            unique key may not be missing.
        durable : bool, optional
            As in `append`.

        Returns
        -------
        AppendResult
            The offsets and the status of the recall in `rmq_sys_wheel_timer`.

        Raises
        ------
        TypeError
            The store is open for reading.
        ValueError
            It is neither a handle nor a timer with a unique key.
        IllegalMessageError
            The time of delivery has passed.
        StoreError
            As `append`.
        """
    def reset(self, group: str, topic: str, to: Literal["earliest", "latest"] | _Time) -> dict[int, int]:
        """Moves the next offset of a group in each queue of a topic, durably.

        Parameters
        ----------
        group : str
            The name of the group.
        topic : str
            The topic.
        to : {"earliest", "latest"}, datetime with a timezone, or int of ms since 1970
            The first message, the end of the queue, or the first message that was stored then or later.

        Returns
        -------
        dict of int to int
            For each queue id the queue offset of the message that the group gets next.

        Raises
        ------
        TypeError, ValueError
            The store is open for reading, or `to` is not one of those accepted.
        NotFoundError
            The topic has no queues.
        CorruptError
            `config/consumerOffset.json` cannot be read.

        Notes
        -----
        The consumers of the group in this process continue there; what they have in flight is
        forgotten, and an `ack` of it returns 0.
        """
    def delete_group(self, group: str) -> None:
        """Deletes a group of consumers, durably: its positions and its settings. Messages are then no longer kept for it
        (`trim`, `retain_unconsumed`). Its retry messages and dead letters stay, and a consumer of this name begins as one
        of a new group.

        Raises `ValueError` while consumers of the group are open in this process, and for `CID_RMQ_SYS_TRANS`;
        `NotFoundError` for an unknown group, `TypeError` if the store is open for reading, `CorruptError` where the
        settings cannot be read.
        """
    def topic_configs(self) -> RecordBatch:
        """Returns the topics in the settings of the broker of the store (`config/topics.json`), with messages or without, a
        row each, ascending: `topic` (utf8), `read_queue_nums` and `write_queue_nums` (int32), `perm` (int32: 4 to read, 2
        to write, 1 a model for new topics), `topic_filter_type` (utf8), `topic_sys_flag` (int32), `order` (bool),
        `attributes` (map of utf8 to utf8, since 5.x). A value that is absent in the file is null.

        Warns and raises as `consumer_offsets`.
        """
    def group_configs(self) -> RecordBatch:
        """Returns the consumer groups in the settings of the broker of the store (`config/subscriptionGroup.json`), a row
        each, ascending: `group` (utf8), `consume_enable`, `consume_broadcast_enable` and `consume_message_orderly` (bool),
        `retry_queue_nums`, `retry_max_times` (retries after which a message is a dead letter) and `consume_timeout_minute`
        (int32). A value that is absent in the file is null.

        Warns and raises as `consumer_offsets`.
        """
    def delay_offsets(self) -> RecordBatch:
        """Returns the positions of the delivery of delayed messages (`config/delayOffset.json`, every 10 s), a row a level,
        ascending: `level` (int32), `offset` (int64: the queue offset of the message that is delivered next, in queue `level
        - 1` of `SCHEDULE_TOPIC_XXXX`). A writer that delivers them itself returns its own progress, which is newer than the
        file.

        Warns and raises as `consumer_offsets`.
        """
    def delay_backlog(self) -> RecordBatch:
        """Returns the delayed messages that wait for their delivery, a row for each level with a queue, ascending: `level`
        (int32), `offset` (int64: the queue offset of the message that is delivered next, in queue `level - 1` of
        `SCHEDULE_TOPIC_XXXX`), `waiting` (int64): messages from there on, `next_due` (timestamp[us, UTC]): the time at
        which the next one is due, null without one and where its queue entry is damaged or lost, `overdue` (int64):
        messages that were due before now. No message is read. The progress is that of `delay_offsets`; in a store without
        any, all messages wait.

        Warns as `consumer_offsets`. Raises `CorruptError` and `UnsupportedFormatError` as it does.
        """
    def transactions(self) -> OpenTransactions:
        """Returns the half messages whose transactions are open, the oldest first: an `OpenTransactions`.

        In the process that writes the store these are as they are now. A reader finds them by the progress in
        `config/consumerOffset.json`, by op messages, and by the committed messages in the log, which is read from the first
        half message that may be open.

        Warns as `consumer_offsets`. Raises `CorruptError` if the progress cannot be read, `UnsupportedFormatError` if the
        queues are in RocksDB.
        """
