//! Statistics of messages, files and consumers, as one batch each.

use std::sync::Arc;

use arrow_array::builder::{MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, RecordBatchOptions,
    StringArray, TimestampMicrosecondArray,
};
use arrow_schema::{Field, Schema};

use crate::arrow::resolve::from_arrow;
use crate::error::Result;
use crate::format::{DelayOffset, IndexGeometry, IndexHeader, SubscriptionGroupConfig, TopicConfig};
use crate::log::{Chains, IndexFileState, KeptElsewhere};
use crate::read::{DelayBacklog, DumpRow, GroupLag, GroupOffset, GroupState, Segment, Shared, Usage, UsageBy, UsageCount};

/// The names that `usage` accepts, each with its grouping.
pub(crate) const USAGE_COLUMNS: [(&str, UsageBy); 5] = [
    ("topic", UsageBy::Topic),
    ("queue_id", UsageBy::QueueId),
    ("tags", UsageBy::Tags),
    ("hour", UsageBy::Hour),
    ("segment", UsageBy::Segment),
];

/// Returns one row for each group: its shared values, in a column for each of `by`, and its counts.
///
/// # Errors
/// [`crate::error::Error::Invalid`] for more text than a column can hold.
pub(crate) fn usage(usage: &Usage, by: &[UsageBy]) -> Result<RecordBatch> {
    let shared = |at: usize| usage.groups.iter().map(move |(shared, _)| shared.get(at));
    let number = |shared: Option<&Shared>| match shared {
        Some(Shared::Number(number)) => Some(*number),
        _ => None,
    };
    let text = |shared: Option<&'_ Shared>| match shared {
        Some(Shared::Text(text)) => text.clone(),
        _ => None,
    };
    let mut columns = Vec::new();
    for (at, by) in by.iter().enumerate() {
        let array: ArrayRef = match by {
            UsageBy::Topic | UsageBy::Tags => texts(shared(at).map(text)),
            UsageBy::QueueId => Arc::new(
                shared(at)
                    .map(|shared| number(shared).and_then(|id| i32::try_from(id).ok()))
                    .collect::<Int32Array>(),
            ),
            UsageBy::Hour => times(shared(at).map(number)),
            UsageBy::Segment => int64s(shared(at).map(number)),
        };
        let name = USAGE_COLUMNS.iter().find(|(_, known)| known == by);
        columns.push((name.map_or("", |(name, _)| name), array));
    }
    let counts = |of: fn(&UsageCount) -> i64| usage.groups.iter().map(move |(_, count)| Some(of(count)));
    columns.extend([
        ("messages", int64s(counts(|count| count.messages))),
        ("bytes", int64s(counts(|count| count.bytes))),
        ("first_store_time", times(counts(|count| count.first_store_time))),
        ("last_store_time", times(counts(|count| count.last_store_time))),
    ]);
    batch(usage.groups.len(), columns)
}

/// Returns one row for each segment.
pub(crate) fn segments(segments: &[Segment]) -> Result<RecordBatch> {
    let of = || segments.iter();
    batch(
        segments.len(),
        vec![
            ("segment", int64s(of().map(|segment| Some(segment.start)))),
            ("bytes", int64s(of().map(|segment| Some(segment.bytes)))),
            ("sealed", bools(of().map(|segment| Some(segment.is_sealed)))),
            ("first_store_time", times(of().map(|segment| segment.first_store_time))),
        ],
    )
}

/// Returns one row for each part of a store that is kept in files of another format.
pub(crate) fn kept_elsewhere(parts: &[KeptElsewhere]) -> Result<RecordBatch> {
    let of = || parts.iter();
    batch(
        parts.len(),
        vec![
            ("part", texts(of().map(|part| Some(part.part.name().to_owned())))),
            ("path", texts(of().map(|part| Some(part.path.display().to_string())))),
            ("topic", texts(of().map(|part| part.topic.clone()))),
            ("message", texts(of().map(|part| Some(part.what.clone())))),
        ],
    )
}

/// Returns one row for each field.
pub(crate) fn dump(rows: &[DumpRow]) -> Result<RecordBatch> {
    let of = || rows.iter();
    let bytes: BinaryArray = of().map(|row| Some(row.bytes.as_slice())).collect();
    batch(
        rows.len(),
        vec![
            ("file", texts(of().map(|row| Some(row.path.display().to_string())))),
            ("offset", int64s(of().map(|row| i64::try_from(row.offset).ok()))),
            ("length", int64s(of().map(|row| i64::try_from(row.length).ok()))),
            ("bytes", Arc::new(bytes)),
            ("field", texts(of().map(|row| Some(row.field.clone())))),
            ("value", texts(of().map(|row| Some(row.value.clone())))),
            ("wrong", texts(of().map(|row| row.wrong.clone()))),
        ],
    )
}

/// Returns one row for each index file.
pub(crate) fn index_files(files: &[IndexFileState]) -> Result<RecordBatch> {
    let of = || files.iter();
    let header = |value: fn(&IndexHeader) -> i64| {
        let with_items = move |file: &IndexFileState| (items(file) > 0).then(|| value(&file.header));
        files.iter().map(with_items)
    };
    let geometry = |value: fn(IndexGeometry) -> u32| {
        files
            .iter()
            .map(move |file| file.geometry.map(|geometry| i64::from(value(geometry))))
    };
    let chains = |value: fn(Chains) -> u32| {
        files
            .iter()
            .map(move |file| file.chains.map(|chains| i64::from(value(chains))))
    };
    let items_of = |slots: fn(&IndexFileState) -> Option<u32>| {
        let ratio = move |file: &IndexFileState| {
            let slots = slots(file).filter(|slots| *slots > 0)?;
            Some(f64::from(items(file)) / f64::from(slots))
        };
        Arc::new(files.iter().map(ratio).collect::<Float64Array>()) as ArrayRef
    };
    let name = |file: &IndexFileState| Some(file.path.file_name()?.to_string_lossy().into_owned());
    batch(
        files.len(),
        vec![
            ("name", texts(of().map(name))),
            ("slots", int64s(geometry(|geometry| geometry.slots))),
            ("max_items", int64s(geometry(|geometry| geometry.items.saturating_sub(1)))),
            ("items", int64s(of().map(|file| Some(items(file).into())))),
            ("used_slots", int64s(chains(|chains| chains.used_slots))),
            ("load", items_of(|file| Some(file.geometry?.slots))),
            ("longest_chain", int64s(chains(|chains| chains.longest))),
            ("mean_chain", items_of(|file| Some(file.chains?.used_slots))),
            ("first_physical_offset", int64s(header(|header| header.begin_physical_offset))),
            ("last_physical_offset", int64s(header(|header| header.end_physical_offset))),
            ("first_store_time", times(header(|header| header.begin_time))),
            ("last_store_time", times(header(|header| header.end_time))),
            ("whole", bools(of().map(|file| file.is_whole))),
            ("used", bools(of().map(|file| Some(file.is_used)))),
        ],
    )
}

/// Returns the number of keys of an index file; a damaged header may have a negative count.
fn items(file: &IndexFileState) -> i32 {
    file.header.index_count.max(1) - 1
}

/// Returns one row for each group, topic and queue.
pub(crate) fn consumer_offsets(offsets: &[GroupOffset]) -> Result<RecordBatch> {
    let of = || offsets.iter();
    batch(
        offsets.len(),
        vec![
            ("group", texts(of().map(|offset| Some(offset.group.clone())))),
            ("topic", texts(of().map(|offset| Some(offset.topic.clone())))),
            ("queue_id", int32s(of().map(|offset| Some(offset.queue_id)))),
            ("offset", int64s(of().map(|offset| Some(offset.offset)))),
        ],
    )
}

/// Returns one row for each group, topic and queue.
pub(crate) fn lags(lags: &[GroupLag]) -> Result<RecordBatch> {
    let of = || lags.iter();
    batch(
        lags.len(),
        vec![
            ("group", texts(of().map(|lag| Some(lag.group.clone())))),
            ("topic", texts(of().map(|lag| Some(lag.topic.clone())))),
            ("queue_id", int32s(of().map(|lag| Some(lag.queue_id)))),
            ("offset", int64s(of().map(|lag| lag.offset))),
            ("min_offset", int64s(of().map(|lag| Some(lag.queue.as_ref()?.start)))),
            ("max_offset", int64s(of().map(|lag| Some(lag.queue.as_ref()?.end)))),
            ("lag", int64s(of().map(GroupLag::lag))),
        ],
    )
}

/// Returns one row for each group, topic and queue.
pub(crate) fn groups(groups: &[GroupState]) -> Result<RecordBatch> {
    let of = || groups.iter();
    batch(
        groups.len(),
        vec![
            ("group", texts(of().map(|state| Some(state.lag.group.clone())))),
            ("topic", texts(of().map(|state| Some(state.lag.topic.clone())))),
            ("queue_id", int32s(of().map(|state| Some(state.lag.queue_id)))),
            ("offset", int64s(of().map(|state| state.lag.offset))),
            ("min_offset", int64s(of().map(|state| Some(state.lag.queue.as_ref()?.start)))),
            ("max_offset", int64s(of().map(|state| Some(state.lag.queue.as_ref()?.end)))),
            ("lag", int64s(of().map(|state| state.lag.lag()))),
            ("unconsumed_since", times(of().map(|state| state.unconsumed_since))),
            ("consumers", int32s(of().map(|state| state.consumers))),
            ("in_flight", int64s(of().map(|state| state.in_flight))),
        ],
    )
}

/// Returns one row for each topic.
pub(crate) fn topic_configs(topics: &[TopicConfig]) -> Result<RecordBatch> {
    let of = || topics.iter();
    let mut attributes = MapBuilder::new(
        Some(MapFieldNames {
            entry: "entries".to_owned(),
            key: "key".to_owned(),
            value: "value".to_owned(),
        }),
        StringBuilder::new(),
        StringBuilder::new(),
    );
    for topic in topics {
        for (name, value) in topic.attributes.iter().flatten() {
            attributes.keys().append_value(name);
            attributes.values().append_value(value);
        }
        attributes.append(topic.attributes.is_some()).map_err(from_arrow)?;
    }
    batch(
        topics.len(),
        vec![
            ("topic", texts(of().map(|topic| Some(topic.topic.clone())))),
            ("read_queue_nums", int32s(of().map(|topic| topic.read_queue_nums))),
            ("write_queue_nums", int32s(of().map(|topic| topic.write_queue_nums))),
            ("perm", int32s(of().map(|topic| topic.perm))),
            ("topic_filter_type", texts(of().map(|topic| topic.topic_filter_type.clone()))),
            ("topic_sys_flag", int32s(of().map(|topic| topic.topic_sys_flag))),
            ("order", bools(of().map(|topic| topic.order))),
            ("attributes", Arc::new(attributes.finish())),
        ],
    )
}

/// Returns one row for each group.
pub(crate) fn subscription_groups(groups: &[SubscriptionGroupConfig]) -> Result<RecordBatch> {
    let of = || groups.iter();
    batch(
        groups.len(),
        vec![
            ("group", texts(of().map(|group| Some(group.group.clone())))),
            ("consume_enable", bools(of().map(|group| group.consume_enable))),
            (
                "consume_broadcast_enable",
                bools(of().map(|group| group.consume_broadcast_enable)),
            ),
            (
                "consume_message_orderly",
                bools(of().map(|group| group.consume_message_orderly)),
            ),
            ("retry_queue_nums", int32s(of().map(|group| group.retry_queue_nums))),
            ("retry_max_times", int32s(of().map(|group| group.retry_max_times))),
            (
                "consume_timeout_minute",
                int32s(of().map(|group| group.consume_timeout_minute)),
            ),
        ],
    )
}

/// Returns one row for each level.
pub(crate) fn delay_offsets(offsets: &[DelayOffset]) -> Result<RecordBatch> {
    let of = || offsets.iter();
    batch(
        offsets.len(),
        vec![
            ("level", int32s(of().map(|offset| Some(offset.level)))),
            ("offset", int64s(of().map(|offset| Some(offset.offset)))),
        ],
    )
}

/// Returns one row for each level.
pub(crate) fn delay_backlog(levels: &[DelayBacklog]) -> Result<RecordBatch> {
    let of = || levels.iter();
    batch(
        levels.len(),
        vec![
            ("level", int32s(of().map(|level| Some(level.level)))),
            ("offset", int64s(of().map(|level| Some(level.offset)))),
            ("waiting", int64s(of().map(|level| Some(level.waiting)))),
            ("next_due", times(of().map(|level| level.next_due))),
            ("overdue", int64s(of().map(|level| Some(level.overdue)))),
        ],
    )
}

fn batch(rows: usize, columns: Vec<(&str, ArrayRef)>) -> Result<RecordBatch> {
    let (fields, arrays): (Vec<_>, Vec<_>) = columns
        .into_iter()
        .map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array))
        .unzip();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options).map_err(from_arrow)
}

fn texts(values: impl Iterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

fn int32s(values: impl Iterator<Item = Option<i32>>) -> ArrayRef {
    Arc::new(values.collect::<Int32Array>())
}

fn int64s(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.collect::<Int64Array>())
}

fn bools(values: impl Iterator<Item = Option<bool>>) -> ArrayRef {
    Arc::new(values.collect::<BooleanArray>())
}

/// Converts times in ms. A time that microseconds cannot hold becomes null.
fn times(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    let in_us = values.map(|ms| ms?.checked_mul(1000));
    Arc::new(in_us.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
}
