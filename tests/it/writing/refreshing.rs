//! A reader that takes up what a writer has done since.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use mqstore::config::{Errors, FlushDiskType, StoreConfig};
use mqstore::error::Error;
use mqstore::read::{Follow, FollowFrom, MessageReader, OnDamage, ScanRequest, StoredMessage};
use mqstore::storage::Env;

use super::{Place, SEGMENT, bodies, killed, message, open, put, small, soon, walk};
use crate::counting_env::CountingEnv;
use mqstore::store::OpenMode;

fn counted(place: &Place) -> (CountingEnv, Arc<MessageReader>) {
    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let reader = MessageReader::open(&seam, &place.store, StoreConfig::default()).unwrap();
    (env, Arc::new(reader))
}

#[test]
fn a_refresh_reads_only_what_came_since() {
    let place = Place::new();
    let store = place.create_with(StoreConfig {
        mapped_file_size_commit_log: Some(1 << 22),
        ..small()
    });
    for _ in 0..1000 {
        put(&store, "t", &[1; 1000]);
    }
    let (env, reader) = counted(&place);
    for number in 1..=5 {
        let before = env.bytes_read_below(&place.at("commitlog"));
        put(&store, "t", &[2; 1000]);
        let refreshed = reader.refresh().unwrap();
        assert!((1000..1200).contains(&refreshed.bytes));
        assert!(refreshed.reopened.is_none());
        assert_eq!(reader.queue_bounds("t", 0).unwrap().end, 1000 + number);
        // The record is read a few times, by its length and as a whole.
        assert!(env.bytes_read_below(&place.at("commitlog")) - before < 10_000);
    }
    assert_eq!(reader.refresh().unwrap().bytes, 0);
    assert!(env.changes().is_empty());
}

#[test]
fn a_refresh_follows_rolls_and_new_queues_and_sees_what_a_new_reader_sees() {
    let place = Place::new();
    let store = place.create();
    put(&store, "first", b"1");
    let reader = place.reader();
    for round in 0..30 {
        for number in 0..20 {
            let topic = format!("topic{}", number % 7);
            store.append(message(&topic, round % 3, &vec![3; number * 31])).unwrap();
        }
        assert!(reader.refresh().unwrap().bytes > 0);
        assert_eq!(reader.physical_bounds().end, store.appended_offset());
    }
    let fresh = place.reader();
    assert_eq!(reader.topics().unwrap(), fresh.topics().unwrap());
    for topic in fresh.topics().unwrap() {
        for id in fresh.queue_ids(&topic).unwrap() {
            assert_eq!(bodies(&reader, &topic, id), bodies(&fresh, &topic, id));
        }
    }
    assert_eq!(walk(&reader, SEGMENT).len(), 601);
}

#[test]
fn a_refresh_shows_nothing_that_a_sync_writer_has_not_made_durable() {
    let place = Place::new();
    let store = place.create_with(StoreConfig {
        flush_disk_type: FlushDiskType::Sync,
        ..small()
    });
    store.append(message("t", 0, b"durable")).unwrap();
    let reader = place.reader();
    let (mut waiting, appender) = (Vec::new(), store.appender(Some(false)));
    appender
        .append_together(vec![message("t", 0, b"waiting")], &mut waiting)
        .unwrap();
    reader.refresh().unwrap();
    assert!(reader.physical_bounds().end <= store.flushed_offset());
    store.flush().unwrap();
    reader.refresh().unwrap();
    assert_eq!(bodies(&reader, "t", 0), [b"durable".to_vec(), b"waiting".to_vec()]);
}

#[test]
fn a_log_that_was_cut_before_the_last_message_is_an_error_again_and_again() {
    let place = Place::new();
    let store = place.create();
    put(&store, "t", b"kept");
    let left = killed(&place);
    let path = left.path();
    put(&store, "t", b"lost");
    for (name, bytes) in super::contents(&place.store) {
        std::fs::write(path.join(name), bytes).unwrap();
    }
    let reader = super::reader(path);
    assert_eq!(reader.queue_bounds("t", 0).unwrap(), 0..2);
    let segment = path.join("commitlog").join(format!("{:020}", 0));
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[reader.recovery().last_offset as usize..].fill(0);
    let file = std::fs::OpenOptions::new().write(true).open(&segment).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    for _ in 0..2 {
        let error = reader.refresh().unwrap_err();
        assert!(matches!(&error, Error::Corrupt { offset, .. } if *offset == reader.recovery().last_offset as u64));
    }
}

#[test]
fn a_store_without_any_mapping_reads_the_same() {
    let place = Place::new();
    let store = place.create();
    for number in 0..200_usize {
        store.append(message("t", (number % 3) as i32, &vec![4; number * 7])).unwrap();
    }
    store.close().unwrap();
    let env = CountingEnv::new();
    env.before_looks(|look| match look.split_once(' ') {
        Some(("map", _)) => Err(io::ErrorKind::OutOfMemory.into()),
        _ => Ok(()),
    });
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let reader = Arc::new(MessageReader::open(&seam, &place.store, StoreConfig::default()).unwrap());
    let fresh = place.reader();
    for id in 0..3 {
        assert_eq!(bodies(&reader, "t", id), bodies(&fresh, "t", id));
    }
    assert!(walk(&reader, SEGMENT).iter().all(|message| !message.is_mapped()));
    // A file that is cut short after it was opened is damage, and no zeros.
    let last = walk(&fresh, SEGMENT).pop().unwrap().view().physical_offset() as u64;
    let segment = place.at("commitlog").join(format!("{:020}", last / SEGMENT * SEGMENT));
    let file = std::fs::OpenOptions::new().write(true).open(segment).unwrap();
    file.set_len(last % SEGMENT + 40).unwrap();
    assert!(matches!(reader.message_at(last as i64), Err(Error::Corrupt { .. })));
}

#[test]
fn a_segment_made_ahead_is_not_expired_when_its_writer_removes_it() {
    let place = Place::new();
    let store = place.create();
    put(&store, "t", &[6; 900]);
    let begun = soon();
    while place.names("commitlog").len() < 2 {
        assert!(Instant::now() < begun, "no segment is made ahead");
        std::thread::yield_now();
    }
    let reader = place.reader();
    store.close().unwrap();
    assert_eq!(place.names("commitlog").len(), 1);
    reader.refresh().unwrap();
    let store = open(&place.store, StoreConfig::default(), OpenMode::Existing).unwrap();
    for _ in 1..20 {
        put(&store, "t", &[6; 900]);
    }
    reader.refresh().unwrap();
    assert_eq!(reader.physical_bounds().end, store.appended_offset());
    assert_eq!(bodies(&reader, "t", 0).len(), 20);
}

fn given(follow: &mut Follow) -> Vec<StoredMessage> {
    let end = follow.reader().queued_until();
    std::iter::from_fn(|| follow.next_until(end).unwrap()).collect()
}

#[test]
fn a_scan_that_follows_the_log_continues_at_its_position() {
    let place = Place::new();
    let store = place.create();
    put(&store, "t", b"before");
    let (reader, on_damage) = (place.reader(), OnDamage::new(Errors::Raise));
    let mut follow = Follow::of_log(reader.clone(), ScanRequest::default(), FollowFrom::Latest, on_damage).unwrap();
    assert!(given(&mut follow).is_empty());
    for round in 0..50 {
        for _ in 0..10 {
            put(&store, "t", &[5; 500]);
        }
        assert!(given(&mut follow).is_empty());
        reader.refresh().unwrap();
        let offsets: Vec<i64> = given(&mut follow)
            .iter()
            .map(|message| message.view().queue_offset())
            .collect();
        assert_eq!(offsets, (1 + round * 10..11 + round * 10).collect::<Vec<_>>());
    }
}

#[test]
fn a_refresh_continues_with_the_segment_that_the_next_writer_has_made() {
    let place = Place::new();
    let store = place.create();
    put(&store, "t", &[6; 900]);
    let reader = place.reader();
    // The segment after the current one is looked at and removed by the close.
    put(&store, "t", &[6; 900]);
    reader.refresh().unwrap();
    store.close().unwrap();
    let store = open(&place.store, StoreConfig::default(), OpenMode::Existing).unwrap();
    for number in 2..60 {
        put(&store, "t", &[6; 900]);
        reader.refresh().unwrap();
        assert_eq!(reader.queue_bounds("t", 0).unwrap(), 0..number + 1);
    }
    assert_eq!(bodies(&reader, "t", 0).len(), 60);
}
