//! Takes any bytes as a store: a sequence of files, each with a byte for its family, its length in two bytes, and its content.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqstore::config::{Errors, StoreConfig};
use mqstore::error::Error;
use mqstore::format::segment_name;
use mqstore::read::{GetRequest, HitBounds, MessageReader, QueryBy, QueryRequest, QueueScan, Side, TagFilter};

use super::image::Image;

/// The most messages that are read from a queue: more than fit into the bytes.
const ENDLESS: usize = 5000;

pub fn check(bytes: &[u8]) {
    let root = Path::new("/store");
    let image = unpack(bytes);
    let Ok(reader) = MessageReader::open(&image.env(root), root, StoreConfig::default()) else {
        return;
    };
    let reader = Arc::new(reader);
    for topic in reader.topics().unwrap_or_default() {
        for queue_id in reader.queue_ids(&topic).unwrap_or_default() {
            read_queue(&reader, &topic, queue_id);
        }
    }
    let bounds = reader.physical_bounds();
    for offset in [i64::MIN, 0, bounds.start, bounds.end - 1, bounds.end, i64::MAX] {
        if let Ok(message) = reader.message_at(offset) {
            assert_eq!(message.view().physical_offset(), offset);
        }
    }
    for errors in [Errors::Raise, Errors::Skip] {
        let _ = reader.resolve_keys(&[("t", "k0"), ("t", "k1"), ("u", "k0")], &HitBounds::default(), errors);
    }
}

/// Unpacks the files, each placed after the previous one of its family.
fn unpack(mut bytes: &[u8]) -> Image {
    let mut image = Image::default();
    let mut ends = [0; 4];
    while let [kind, high, low, rest @ ..] = bytes {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (content, later) = rest.split_at(len);
        bytes = later;
        let mut after_the_last = |family: usize, dir: &str| {
            let name = segment_name(ends[family]);
            ends[family] += len as u64;
            Path::new(dir).join(name)
        };
        let path: PathBuf = match kind % 8 {
            0 => after_the_last(0, "commitlog"),
            1 => after_the_last(1, "consumequeue/t/0"),
            2 => after_the_last(2, "consumequeue/u/1"),
            3 => after_the_last(3, "batchconsumequeue/b/0"),
            4 => format!("index/202601010000000{kind:02}").into(),
            5 => "checkpoint".into(),
            6 => "config/mqstore.json".into(),
            _ => "abort".into(),
        };
        image.put_file(&path, content.to_vec());
    }
    image
}

fn read_queue(reader: &Arc<MessageReader>, topic: &str, queue_id: i32) {
    let Ok(bounds) = reader.queue_bounds(topic, queue_id) else {
        return;
    };
    let Ok(scan) = QueueScan::new(reader.clone(), topic.to_owned(), queue_id, bounds.clone()) else {
        return;
    };
    let mut keys = vec!["k0".to_owned()];
    let read = scan.take(ENDLESS).map(|message| {
        let Ok(message) = message else { return };
        let view = message.view();
        assert!(bounds.contains(&view.queue_offset()) || view.properties().get("INNER_MULTI_DISPATCH").is_some());
        keys.extend(view.keys().into_iter().take(2));
        let _ = reader.message(&view.message_id().to_string(), true);
    });
    assert!(
        read.count() < ENDLESS,
        "{topic}/{queue_id} {bounds:?} is iterated without end"
    );
    for offset in [bounds.start, bounds.end - 1, i64::MAX] {
        let request = GetRequest {
            topic: topic.to_owned(),
            queue_id,
            offset,
            max_messages: 8,
            tags: TagFilter::parse("a || b"),
            bounded: offset != bounds.start,
            errors: mqstore::config::Errors::Raise,
        };
        let _ = reader.get::<Error>(&request, |_| Ok(true));
        let _ = reader.offset_at(topic, queue_id, offset, Side::Left);
    }
    keys.truncate(8);
    for key in keys {
        let _ = reader.query(&QueryRequest {
            topic: topic.to_owned(),
            by: QueryBy::Key(key),
            times: i64::MIN..i64::MAX,
            limit: Some(4),
            errors: Errors::Raise,
        });
    }
}
