//! The on-disk format, decoded and encoded, as pure functions of bytes: no file, clock, lock or thread. docs/FORMAT.md gives the
//! meaning of each byte.

/// The error of this module.
mod malformed;
/// Big-endian fields in a slice, and the test for zeros.
mod bytes;
/// `String.hashCode`.
mod java_hash;
/// The property bytes of a record.
mod properties;
/// The properties of a message under construction, and the limits of a tag and a key.
mod property_list;
/// The bits of a record's sysFlag.
mod sys_flag;
/// Address and port of a producer or broker.
mod host;
/// The delay of a delayed message.
mod delay_level;
/// The id of a stored message.
mod message_id;
/// The layout of the fields of a record.
mod record_layout;
/// The checksums of a record.
mod crc;
/// A message to be encoded.
mod message;
/// The type of the messages of a topic.
mod message_type;
/// A view of a record in its buffer.
mod message_view;
/// The times of a timer message.
mod timer;
/// The form of our records that reveals a lost sector.
mod torn_record;
/// The one parser of records: message, BLANK, end or corrupt.
mod record;
/// The size of a record with a damaged header field.
mod damaged_record;
/// Decompression of a body.
mod body;
/// Batches: several messages in one body.
mod producer_batch;
/// Entries of consume queues.
mod consume_queue;
/// Salvage records, which replace lost ones.
mod salvage_record;
/// Header, slots and items of an index file.
mod index;
/// The numbers of slots and items, detected from an index file's content.
mod index_geometry;
/// The fields of a record that its queue and the index need.
mod dispatch_request;
/// The checkpoint: stamps of what is on disk.
mod checkpoint;
/// The lock file: the claim of a writer on the log.
mod lock_file;
/// The mark of the flushed offset.
mod flushed_mark;
/// The progress of the delivery of timer messages.
mod timer_check;
/// The conversion of days to dates.
mod date;
/// The fields of a record, a queue entry and an index item, for people.
mod dump;
/// The id that a producer gives a message.
mod unique_key;
/// Names of segments and index files.
mod file_name;
/// Names in a store directory.
mod store_layout;
/// The column family of a RocksDB table file.
mod rocksdb_table;
/// JSON whose names may be numbers without quotes.
mod broker_json;
/// The settings that a broker keeps in files.
mod broker_config;
/// The positions file of a consumer that reads the store of another process.
mod positions_file;
/// The check of a topic's name.
mod topic_name;

pub use body::{MAX_DECODED_BODY, decode_body};
pub use broker_config::{
    ConsumerOffset, DelayOffset, LIGHT_QUEUE_ID, SubscriptionGroupConfig, TOPIC_GROUP_SEPARATOR, TopicConfig,
    consumer_offsets_of, decode_consumer_offsets, decode_delay_offsets, decode_settings, decode_subscription_group,
    decode_subscription_groups, decode_topic_config, decode_topic_configs, delay_offsets_of, is_light_queue,
    subscription_groups_of, topic_configs_of,
};
pub use broker_json::check_settings;
pub use bytes::is_zero;
pub use checkpoint::{CHECKPOINT_FIELDS_SIZE, CHECKPOINT_SIZE, Checkpoint};
pub use consume_queue::{CQ_UNIT_SIZE, CqUnit, MAX_QUEUE_OFFSET, ext_address};
pub use crc::crc32;
pub use damaged_record::{ClaimedSize, size_of_damaged};
pub use date::{Date, Round, mistaken_unit, utc_text};
pub use delay_level::{DelayLevels, SCHEDULE_TOPIC};
pub use dispatch_request::DispatchRequest;
pub use dump::{DumpedField, dump_item, dump_record, dump_unit, size_to_dump};
pub use file_name::{index_name, locate, parse_index_name, parse_segment_name, segment_name};
pub use flushed_mark::{FLUSHED_MARK_SIZE, FlushedMark};
pub use host::Host;
pub use index::{
    INDEX_HEADER_SIZE, ITEM_SIZE, IndexGeometry, IndexHeader, IndexItem, SLOT_SIZE, index_key_hash, index_key_of_tag,
};
pub use index_geometry::{GeometryGuess, detect_index_geometry, detect_sparse_index_geometry, index_admits};
pub use java_hash::java_hash;
pub use lock_file::{LOCK_FILE_SIZE, NO_OWN_RECORDS, encode_lock_file, own_from};
pub use malformed::Malformed;
pub use message::{EncodedMessage, Message, MessageTemplate};
pub use message_id::MessageId;
pub use message_type::MessageType;
pub use message_view::MessageView;
pub use positions_file::{RecordIdentity, StoredPosition, StoredPositions, decode_positions, encode_positions};
pub use producer_batch::{BatchUnit, ProducerBatch, encode_unit, stored_properties};
pub use properties::{MAX_PROPERTIES_SIZE, Properties, StoreOrders, encode_properties, end_properties, pairs_of, property};
pub use property_list::{PropertyList, PropertyRoom, encode_keys};
pub use record::{
    BLANK_SIZE, CLAIM_SIZE, Check, Record, claimed_offset, claimed_size, claimed_store_time, encode_blank, fits, read_record,
    record_heads,
};
pub use record_layout::{MIN_RECORD_SIZE, RecordLayout, Version};
pub use rocksdb_table::{RocksdbFamily, rocksdb_family};
pub use salvage_record::{encode_salvage_record, is_salvage_record, salvage_record_size};
pub use store_layout::{
    ABORT_FILE, BACKUP_PREFIX, BATCH_CONSUME_QUEUE_DIR, BrokerFile, CHECKPOINT_FILE, COMMIT_LOG_DIR, COMPACTION_LOG_DIR,
    CONFIG_DIR, CONSUME_QUEUE_DIR, CONSUMER_OFFSET_FILE, DELAY_OFFSET_FILE, FLUSHED_MARK_FILE, GEOMETRY_FILE, INDEX_DIR,
    LMQ_CONSUMER_OFFSET_FILE, LOCK_FILE, RECOVERY_NOTE_FILE, REPLICA_NOTE_FILE, ROCKSDB_CONSUME_QUEUE_DIR, ROCKSDB_CURRENT_FILE,
    ROCKSDB_STORE_DIR, SUBSCRIPTION_GROUP_FILE, TIMER_CHECK_FILE, TIMER_LOG_DIR, TIMER_WHEEL_FILE, TOPICS_FILE, TRIM_NOTE_FILE,
    UNFINISHED_PREFIX,
};
pub use sys_flag::{
    BORN_HOST_V6, COMMIT, COMPRESSED, COMPRESSION_MASK, Compression, INNER_BATCH, MULTI_TAGS, NEED_UNWRAP, PREPARED, ROLLBACK,
    STORE_HOST_V6, TRANSACTION_MASK, Transaction, compression, transaction,
};
pub use timer::{TIMER_ADDED_SIZE, TIMER_TOPIC, TimerRecord, TimerRequest, recall_key, timer_out_ms};
pub use timer_check::{TIMER_CHECK_SIZE, TimerCheck, TimerProgress};
pub use topic_name::{
    GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC, RETRY_PREFIX, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, is_system_topic, retry_topic,
    validate_broker_group, validate_broker_topic, validate_topic,
};
pub use torn_record::{MAX_NUL_RUN, has_lost_bytes, longest_nul_run};
pub use unique_key::{UniqueKey, ms_of_month};
