//! Messages of a queue as a consumer pulls them: 32 in a call, with the statuses and bounds of a broker. The limit copies the same
//! bodies from a mapping of the log, at known offsets. `RocketMQ` reads a copy of the store.

use std::time::Instant;

use mqstore::config::{Errors, StoreConfig};
use mqstore::error::Error;
use mqstore::read::{GetRequest, TagFilter};
use serde_json::json;

use super::queue_read::{BODY, limit, offsets, reader};
use crate::harness::machine::each;
use crate::harness::rocketmq::RocketMq;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{TOPIC, Workload, fill, open};
use crate::harness::{Bench, Contender, Row, Target};

const MESSAGES: usize = 50_000;
/// The default of a RocketMQ consumer.
const PULLED: usize = 32;

/// The request of a consumer of the first queue.
pub(super) fn pull(offset: i64, max_messages: usize) -> GetRequest {
    GetRequest {
        topic: TOPIC.to_owned(),
        queue_id: 0,
        offset,
        max_messages,
        tags: TagFilter::parse("*"),
        bounded: true,
        errors: Errors::Raise,
    }
}

pub fn run(bench: &Bench) {
    let dir = bench.dir();
    let path = dir.path().join("store");
    let count = bench.size(MESSAGES, 200);
    let store = open(&path, StoreConfig::default());
    fill(&store, &Workload::of_bodies(BODY), count, 1);
    store.close().unwrap();
    let offsets = offsets(&path, 1);
    let reader = reader(&path);
    let ours = || {
        let (begun, mut offset, mut body) = (Instant::now(), 0, Vec::with_capacity(BODY));
        while offset < count as i64 {
            let request = pull(offset, PULLED);
            let pulled = reader.get(&request, |_| Ok::<_, Error>(true)).unwrap();
            for message in &pulled.messages {
                body.clear();
                body.extend_from_slice(message.view().body());
                std::hint::black_box(&mut body);
            }
            offset = pulled.next_begin_offset;
        }
        each(begun.elapsed(), count)
    };
    let row = Row {
        name: "read_get",
        params: json!({"body": BODY, "messages": PULLED}),
        unit: "ns a message",
        target: Target::of_limit(0.5),
        waits_for_disk: false,
    };
    let limit = Contender::new(LIMIT, || limit(&path, &offsets));
    let peers = RocketMq::start_all_on(bench, &path)
        .into_iter()
        .map(|mut peer| Contender::new(peer.name.clone(), move || peer.pull(count)));
    let contenders = [Contender::new(OURS, ours), limit];
    bench.measure(&row, contenders.into_iter().chain(peers).collect());
}
