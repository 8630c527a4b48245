//! Opening a store whose writer died with 64 MiB past its last stamp, by the size of the store: the bytes before the stamp must not
//! cost time. The limit is the same open of a store with few bytes before it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use mqstore::config::StoreConfig;
use mqstore::format::{ABORT_FILE, CHECKPOINT_FILE, CONFIG_DIR, FLUSHED_MARK_FILE};
use serde_json::json;
use tempfile::TempDir;

use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{Workload, fill, open, open_stepped};
use crate::harness::{Bench, Contender, Row, Target};

const BODY: usize = 1024;
const TAIL: usize = 64 << 20;
const SMALL: usize = 64 << 20;
const LARGE: usize = 1 << 30;
/// The scan starts with the segment of the stamp.
const MOST_SCANNED: i64 = 2 * TAIL as i64;

pub fn run(bench: &Bench) {
    let large = bench.size(LARGE, 4 << 20);
    let row = Row {
        name: "scale_recovery",
        params: json!({"body": BODY, "tail_mib": TAIL >> 20, "store_mib": large >> 20, "compared_with_mib": SMALL >> 20}),
        unit: "ms",
        target: Target::of_limit(1.0 / 1.3),
        waits_for_disk: false,
    };
    let (large, small) = (Image::new(bench, large), Image::new(bench, bench.size(SMALL, 1 << 20)));
    let ours = Contender::new(OURS, || large.open());
    let limit = Contender::new(LIMIT, || small.open());
    bench.measure(&row, vec![ours, limit]);
}

/// A store, and copies of the files that say how much of it is stamped.
struct Image {
    store: PathBuf,
    stamps: Vec<(PathBuf, Vec<u8>)>,
    _dir: TempDir,
}

impl Image {
    fn new(bench: &Bench, before: usize) -> Self {
        let dir = bench.dir();
        let path = dir.path().join("store");
        let workload = Workload::of_bodies(BODY);
        let store = open(&path, StoreConfig::default());
        fill(&store, &workload, before / workload.record_size(), 4);
        store.close().unwrap();
        let stamps = [path.join(CHECKPOINT_FILE), path.join(CONFIG_DIR).join(FLUSHED_MARK_FILE)];
        let stamps = stamps.map(|stamp| (stamp.clone(), fs::read(stamp).unwrap())).to_vec();
        let store = open_stepped(&path, StoreConfig::default());
        fill(&store, &workload, bench.size(TAIL, 1 << 20) / workload.record_size(), 4);
        store.close().unwrap();
        Self {
            store: path,
            stamps,
            _dir: dir,
        }
    }

    /// Measures an open, in ms, in the state at the append of the last messages.
    fn open(&self) -> f64 {
        for (stamp, bytes) in &self.stamps {
            fs::write(stamp, bytes).unwrap();
        }
        abort(&self.store);
        let begun = Instant::now();
        let store = open(&self.store, StoreConfig::default());
        let took = begun.elapsed();
        let report = store.reader().recovery();
        assert!(
            report.log_end - report.scan_start <= MOST_SCANNED,
            "the stamp did not count: {report:?}"
        );
        store.close().unwrap();
        took.as_secs_f64() * 1e3
    }
}

fn abort(store: &Path) {
    fs::write(store.join(ABORT_FILE), "").unwrap();
}
