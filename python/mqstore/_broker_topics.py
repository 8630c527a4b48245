"""Topics and groups that a broker uses internally."""

#: Delayed messages until their delivery. Level `n` is queue `n - 1`.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
#: Timer messages of 5.x, each with its own delivery time.
TIMER_TOPIC = "rmq_sys_wheel_timer"
#: Half messages, and op messages, each of which lists half messages that have ended.
HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#: The topics of a broker that keeps its transactions in RocksDB. An op message names a half message by its physical offset.
ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
#: Half messages that the broker has given up after the last check.
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
#: The group whose offsets are the progress of the broker in half and op messages.
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
#: Prefixes of the topics of dead letters and of retries of a group.
DEAD, RETRY = "%DLQ%", "%RETRY%"
