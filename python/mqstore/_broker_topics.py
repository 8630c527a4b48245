"""Topics and groups that a broker makes for itself."""

#: Messages that wait for their delay level: level `n` is queue `n - 1`.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
#: Timer messages of 5.x, with a time of their own.
TIMER_TOPIC = "rmq_sys_wheel_timer"
#: Half messages, and op messages, each of which lists half messages that have ended.
HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#: The same of a broker that keeps its transactions in RocksDB. Each op message names a half message by its physical offset.
ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
#: Half messages after the last check: the broker asks no more.
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
#: The group whose offsets are the broker's progress in half and op messages.
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
#: Prefixes of the topics with what the consumers of a group failed on.
DEAD, RETRY = "%DLQ%", "%RETRY%"
