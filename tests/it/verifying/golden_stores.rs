//! Stores that RocketMQ wrote verify as what they are.

use std::fmt::Write;

use super::{told, verified};
use crate::golden::{golden_dir, unpack_events};

/// The findings in each store, as id and count.
const FOUND: [(&str, &[(&str, u64)]); 13] = [
    ("491_basic_clean", &[]),
    (
        "491_crash_image",
        &[("store.not_closed", 1), ("index.not_recovered_by_broker", 2)],
    ),
    ("491_delay_delivered", &[]),
    ("491_indexroll", &[]),
    ("491_multifile", &[]),
    ("498_basic_clean", &[]),
    ("498_mixed", &[("log.topic_name", 3)]),
    ("533_basic_clean", &[]),
    ("533_batchcq", &[("queue.not_read", 1)]),
    ("533_crcprop", &[("store.not_closed", 1)]),
    ("533_mixed", &[("log.topic_name", 3)]),
    ("533_v2_record", &[("index.sizes_unknown", 1)]),
    ("551_mixed", &[("log.topic_name", 3)]),
];

#[test]
fn the_stores_of_every_version_verify_as_what_they_are() {
    let mut wrong = String::new();
    for (name, expected) in FOUND {
        let report = verified(&golden_dir().join(name));
        let found: Vec<_> = report
            .findings
            .iter()
            .map(|finding| (finding.id.facts().name, finding.count))
            .collect();
        // Its only index file has no item, so that a writer needs options.
        let is_ok = name != "533_v2_record";
        if found != expected || report.is_ok() != is_ok || report.messages == 0 {
            let _ = write!(wrong, "{name}: {} messages\n{}\n", report.messages, told(&report));
        }
    }
    assert_eq!(wrong, "");
}

#[test]
fn a_store_of_thousands_of_events_verifies_as_whole() {
    let dir = tempfile::tempdir().unwrap();
    let report = verified(&unpack_events(dir.path()));
    let found: Vec<_> = report
        .findings
        .iter()
        .map(|finding| (finding.id.facts().name, finding.count))
        .collect();
    // The name of one topic begins with a quote, in its four queues.
    assert_eq!(found, [("log.topic_name", 4)], "{}", told(&report));
    assert_eq!((report.messages, report.queue_entries), (7865, 7865));
    assert!(report.index_items > 7865);
}
