//! A slave on a machine whose power goes, and a master that the test plays.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mqstore::config::StoreConfig;
use mqstore::error::{Error, Result};
use mqstore::ha::{Slave, SlaveOptions, SlaveReport, SlaveState, Timing, TransferHeader};
use mqstore::read::MessageReader;
use mqstore::recovery::ReplicaLog;
use mqstore::storage::Step;
use mqstore::store::{MessageStore, OpenMode};

use super::examine::root;
use super::model::{Checked, Violation, ensure, works};
use super::run::machine;
use super::scenes::{GEOMETRY, message, open};
use crate::played_broker::PlayedBroker;
use crate::simulated_env::{Call, Failure, Fault, Random, SimulatedEnv};

/// Longer than any wait for what comes.
const LONG: Duration = Duration::from_secs(20);

/// The log of a master: messages of these sizes, all of one store time.
fn log_of(sizes: &[usize]) -> Vec<u8> {
    let env = machine();
    let store = open(&env, GEOMETRY.config()).unwrap();
    for size in sizes {
        store.append(message(*size)).unwrap();
    }
    let end = store.appended_offset() as usize;
    let segments = env.files(&root().join("commitlog"));
    let mut log: Vec<u8> = segments.into_iter().flat_map(|(_, bytes)| bytes).collect();
    log.truncate(end);
    log
}

/// A master of this log, until it is dropped.
struct Master {
    address: SocketAddr,
    /// The furthest report of a slave after its first one.
    acknowledged: Arc<AtomicI64>,
    is_over: Arc<AtomicBool>,
}

impl Master {
    fn of(log: &[u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_over = Arc::<AtomicBool>::default();
        let acknowledged = Arc::<AtomicI64>::default();
        let (log, over, reported) = (log.to_vec(), is_over.clone(), acknowledged.clone());
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept()
                && !over.load(Ordering::Relaxed)
            {
                let (log, reported) = (log.clone(), reported.clone());
                thread::spawn(move || serve(&stream, &log, &reported));
            }
        });
        Self {
            address,
            acknowledged,
            is_over,
        }
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// Sends the log from where the slave asks on, then heartbeats, until the slave leaves.
fn serve(mut stream: &TcpStream, log: &[u8], acknowledged: &AtomicI64) -> Option<()> {
    let mut report = [0; SlaveReport::LEN];
    stream.read_exact(&mut report).ok()?;
    let asked = SlaveReport::decode(report).max_physical_offset;
    let rest = log.get(asked as usize..).unwrap_or_default();
    let mut at = asked;
    for piece in rest.chunks(1000).chain([&[][..]]) {
        let header = TransferHeader {
            physical_offset: at,
            size: piece.len() as i32,
        };
        stream.write_all(&[&header.encode(), piece].concat()).ok()?;
        at += piece.len() as i64;
    }
    loop {
        stream.read_exact(&mut report).ok()?;
        acknowledged.fetch_max(SlaveReport::decode(report).max_physical_offset, Ordering::SeqCst);
    }
}

fn follow(env: &SimulatedEnv, master: &Master, config: StoreConfig) -> Slave {
    follow_as(env, master, config, true)
}

fn follow_as(env: &SimulatedEnv, master: &Master, config: StoreConfig, is_sync: bool) -> Slave {
    start(env, master, config, is_sync).unwrap()
}

fn start(env: &SimulatedEnv, master: &Master, config: StoreConfig, is_sync: bool) -> Result<Slave> {
    Slave::start(&env.shared(), root(), options_of(master, config, is_sync))
}

fn options_of(master: &Master, config: StoreConfig, is_sync: bool) -> SlaveOptions {
    SlaveOptions {
        master: master.address.to_string(),
        broker: None,
        tap: None,
        is_sync,
        discards_tail: false,
        config,
        timing: Timing {
            pause: Duration::from_millis(5),
            settings: Duration::from_millis(5),
            ..Timing::default()
        },
    }
}

/// Waits until the slave acknowledges the whole log.
fn wait_for(slave: &Slave, log: &[u8], check: &'static str) -> Checked {
    let deadline = Some(Instant::now() + LONG);
    let waited = slave.wait(log.len() as i64 - 1, deadline);
    waited.map_err(|error| Violation {
        check,
        what: format!("{error}: {:?}", slave.status()),
    })
}

/// Returns the log of a store on this machine, up to the end that a reader finds.
fn recovered_log(env: &SimulatedEnv, check: &'static str) -> Checked<Vec<u8>> {
    let reader = works(check, MessageReader::open(&env.shared(), root(), GEOMETRY.recorded()))?;
    let segments = env.files(&root().join("commitlog"));
    let mut log: Vec<u8> = segments.into_iter().flat_map(|(_, bytes)| bytes).collect();
    log.truncate(reader.physical_bounds().end as usize);
    Ok(log)
}

fn sizes(random: &mut Random) -> Vec<usize> {
    (0..2 + random.below(4)).map(|_| 100 + random.below(2500) as usize).collect()
}

/// The power goes after a slave has acknowledged the log: all of it is there.
pub(super) fn acknowledged_by_a_slave(without: Option<Step>, seed: u64) -> Checked {
    let check = "what a slave has acknowledged survives";
    let env = machine();
    env.leave_out(without);
    let log = log_of(&sizes(&mut Random::new(seed)));
    let master = Master::of(&log);
    let slave = follow(&env, &master, GEOMETRY.config());
    wait_for(&slave, &log, check)?;
    let (cut, _) = env.crash(seed);
    drop(slave);
    let promoted = works(check, open(&cut, GEOMETRY.recorded()))?;
    ensure(promoted.appended_offset() >= log.len() as i64, check, || {
        format!("{} of {}", promoted.appended_offset(), log.len())
    })?;
    drop(promoted);
    ensure(recovered_log(&cut, check)?.starts_with(&log), check, || {
        "other bytes".to_owned()
    })
}

/// The power goes while a slave cuts a tail that it received, and takes other messages instead. Each image opens, and its log is one of the
/// two. A slave of the image then has the log of its master, without being asked to discard anything.
pub(super) fn cut_by_a_slave(without: Option<Step>, seed: u64) -> Checked {
    let check = "a slave whose power went while it cut its log follows";
    let mut random = Random::new(seed);
    let (common, stale, new) = (sizes(&mut random), sizes(&mut random), sizes(&mut random));
    let (old_log, new_log) = (log_of(&[&common[..], &stale].concat()), log_of(&[&common[..], &new].concat()));
    let env = machine();
    let master = Master::of(&old_log);
    let slave = follow(&env, &master, GEOMETRY.config());
    wait_for(&slave, &old_log, check)?;
    works(check, slave.close())?;
    let master = Master::of(&new_log);
    env.leave_out(without);
    env.take_images(seed, 3);
    let slave = follow(&env, &master, GEOMETRY.recorded());
    wait_for(&slave, &new_log, check)?;
    let images = env.taken();
    works(check, slave.close())?;
    env.leave_out(None);
    ensure(recovered_log(&env, check)? == new_log, check, || "other bytes".to_owned())?;
    for image in images {
        let promoted = works(check, open(&image.env.crash(seed).0, GEOMETRY.recorded()))?;
        let end = promoted.appended_offset() as usize;
        drop(promoted);
        let log = recovered_log(&image.env, check)?;
        let shared = old_log.iter().zip(&new_log).take_while(|(old, new)| old == new).count();
        ensure(
            end <= shared || old_log.starts_with(&log) || new_log.starts_with(&log),
            check,
            || format!("image {} has bytes of both logs", image.call),
        )?;
        let slave = follow(&image.env, &master, GEOMETRY.recorded());
        wait_for(&slave, &new_log, check)?;
        works(check, slave.close())?;
        ensure(recovered_log(&image.env, check)? == new_log, check, || {
            format!("image {}: other bytes", image.call)
        })?;
    }
    Ok(())
}

/// The power goes once a slave has cut its log: it ends at the cut, with all that was before it.
pub(super) fn cut_by_a_slave_for_good(without: Option<Step>, seed: u64) -> Checked {
    let check = "the log of a slave ends where it was cut";
    let mut random = Random::new(seed);
    let (common, stale) = (sizes(&mut random), sizes(&mut random));
    let (common_log, old_log) = (log_of(&common), log_of(&[&common[..], &stale].concat()));
    let env = machine();
    let master = Master::of(&old_log);
    let slave = follow(&env, &master, GEOMETRY.config());
    wait_for(&slave, &old_log, check)?;
    works(check, slave.close())?;
    env.leave_out(without);
    let end = common_log.len() as i64;
    let mode = OpenMode::Replica(ReplicaLog::CutAt(end));
    let replica = works(
        check,
        MessageStore::open_stepped(&env.shared(), root(), GEOMETRY.recorded(), mode),
    )?;
    let (cut, _) = env.crash(seed);
    drop(replica);
    let promoted = works(check, open(&cut, GEOMETRY.recorded()))?;
    ensure(promoted.appended_offset() == end, check, || {
        format!("{} and not {end}", promoted.appended_offset())
    })?;
    drop(promoted);
    ensure(recovered_log(&cut, check)? == common_log, check, || "other bytes".to_owned())
}

/// The power goes once a slave has received a tail. It cuts that tail without being asked to.
pub(super) fn cut_after_a_power_cut(without: Option<Step>, seed: u64) -> Checked {
    let check = "a tail that was received before a power cut is cut";
    let mut random = Random::new(seed);
    let (common, stale, new) = (sizes(&mut random), sizes(&mut random), sizes(&mut random));
    let (old_log, new_log) = (log_of(&[&common[..], &stale].concat()), log_of(&[&common[..], &new].concat()));
    let env = machine();
    env.leave_out(without);
    let master = Master::of(&old_log);
    let slave = follow(&env, &master, GEOMETRY.config());
    wait_for(&slave, &old_log, check)?;
    let (cut, _) = env.crash(seed);
    drop(slave);
    let master = Master::of(&new_log);
    let slave = follow(&cut, &master, GEOMETRY.recorded());
    wait_for(&slave, &new_log, check)?;
    works(check, slave.close())?;
    ensure(recovered_log(&cut, check)? == new_log, check, || "other bytes".to_owned())
}

/// A slave is promoted, its writer appends, and it is a slave again when the power goes: what the writer has appended is not cut.
pub(super) fn slave_again_after_a_promotion(without: Option<Step>, seed: u64) -> Checked {
    let check = "a slave does not cut what a writer has appended";
    let mut random = Random::new(seed);
    let (common, new) = (sizes(&mut random), sizes(&mut random));
    let (old_log, new_log) = (log_of(&common), log_of(&[&common[..], &new].concat()));
    let env = machine();
    let master = Master::of(&old_log);
    let slave = follow(&env, &master, GEOMETRY.config());
    wait_for(&slave, &old_log, check)?;
    works(check, slave.close())?;
    let promoted = works(check, open(&env, GEOMETRY.recorded()))?;
    works(check, promoted.append(message(50)))?;
    works(check, promoted.close())?;
    env.leave_out(without);
    // It follows a master that is not ahead, and the power goes.
    let slave = follow(&env, &master, GEOMETRY.recorded());
    wait_for(&slave, &old_log, check)?;
    let (cut, _) = env.crash(seed);
    drop(slave);
    let before = recovered_log(&cut, check)?;
    let master = Master::of(&new_log);
    let slave = follow(&cut, &master, GEOMETRY.recorded());
    let begun = Instant::now();
    while slave.status().state != SlaveState::Failed && slave.status().held != Some(new_log.len() as i64) {
        ensure(begun.elapsed() < LONG, check, || format!("{:?}", slave.status()))?;
        thread::sleep(Duration::from_millis(1));
    }
    works(check, slave.close())?;
    ensure(recovered_log(&cut, check)? == before, check, || "it was cut".to_owned())
}

#[test]
fn a_scene_of_a_slave_fails_without_each_step_that_it_needs() {
    type Scene = fn(Option<Step>, u64) -> Checked;
    let needed: [(Step, Scene); 9] = [
        (Step::LogRange, acknowledged_by_a_slave),
        (Step::SegmentRenamed, acknowledged_by_a_slave),
        (Step::FlushedMark, cut_by_a_slave),
        (Step::SegmentCut, cut_by_a_slave_for_good),
        (Step::SegmentCutRenamed, cut_by_a_slave_for_good),
        (Step::ReplicaNote, cut_after_a_power_cut),
        (Step::ReplicaNoteRenamed, cut_after_a_power_cut),
        (Step::ReplicaNoteRenamed, slave_again_after_a_promotion),
        (Step::LogRange, progress_taken_by_a_slave),
    ];
    for (step, scene) in needed {
        let is_noticed = (0..60).any(|seed| scene(Some(step), seed).is_err());
        assert!(is_noticed, "nothing fails without {step:?}");
    }
}

/// No descriptor is left from one of the calls of the cut on, until the slave has noticed. Returns true if the slave had started.
fn cut_with_a_shortage(number: u64) -> Checked<bool> {
    let check = "a slave that had no descriptor while it cut its log follows";
    let mut random = Random::new(number);
    let (common, stale, new) = (sizes(&mut random), sizes(&mut random), sizes(&mut random));
    let (old_log, new_log) = (log_of(&[&common[..], &stale].concat()), log_of(&[&common[..], &new].concat()));
    let env = machine();
    let master = Master::of(&old_log);
    let slave = follow(&env, &master, GEOMETRY.config());
    wait_for(&slave, &old_log, check)?;
    works(check, slave.close())?;
    let master = Master::of(&new_log);
    env.set_fault(Some(Fault {
        failure: Failure::Shortage,
        number,
        stays: true,
    }));
    let Ok(slave) = start(&env, &master, GEOMETRY.recorded(), true) else {
        return Ok(false);
    };
    let begun = Instant::now();
    while slave.status().error.is_none() && slave.status().held != Some(new_log.len() as i64) {
        ensure(begun.elapsed() < LONG, check, || format!("{:?}", slave.status()))?;
        thread::sleep(Duration::from_millis(1));
    }
    // Long enough for the next connection.
    thread::sleep(Duration::from_millis(20));
    env.set_fault(None);
    wait_for(&slave, &new_log, check)?;
    works(check, slave.close())?;
    ensure(recovered_log(&env, check)? == new_log, check, || "other bytes".to_owned())?;
    Ok(true)
}

#[test]
fn a_shortage_while_a_slave_cuts_its_log_is_waited_out() {
    let started = (0..120)
        .map(|number| cut_with_a_shortage(number).unwrap())
        .filter(|started| *started)
        .count();
    assert!(started > 20, "only {started} reached the cut");
}

#[test]
fn what_a_slave_has_received_is_cut_after_a_power_cut() {
    for seed in 0..20 {
        cut_after_a_power_cut(None, seed).unwrap();
    }
}

#[test]
fn what_a_slave_has_acknowledged_survives_a_power_cut() {
    for seed in 0..40 {
        acknowledged_by_a_slave(None, seed).unwrap();
    }
}

#[test]
fn a_cut_of_a_slave_survives_a_power_cut() {
    for seed in 0..20 {
        cut_by_a_slave_for_good(None, seed).unwrap();
    }
}

/// The disk has no room from one of the calls of the cut on, until the slave has noticed: it loses nothing, and cuts once there is room.
#[test]
fn a_full_disk_while_a_slave_cuts_its_log_loses_nothing() {
    let check = "a slave whose disk was full while it cut its log follows";
    let mut refused = 0;
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let (common, stale, new) = (sizes(&mut random), sizes(&mut random), sizes(&mut random));
        let (old_log, new_log) = (log_of(&[&common[..], &stale].concat()), log_of(&[&common[..], &new].concat()));
        let common_log = log_of(&common);
        let env = machine();
        let master = Master::of(&old_log);
        let slave = follow(&env, &master, GEOMETRY.config());
        wait_for(&slave, &old_log, check).unwrap();
        slave.close().unwrap();
        let master = Master::of(&new_log);
        env.set_fault(Some(Fault {
            failure: Failure::Full,
            number: seed,
            stays: true,
        }));
        let Ok(slave) = start(&env, &master, GEOMETRY.recorded(), true) else {
            continue;
        };
        let begun = Instant::now();
        while slave.status().error.is_none() && slave.status().held != Some(new_log.len() as i64) {
            assert!(begun.elapsed() < LONG, "{:?}", slave.status());
            thread::sleep(Duration::from_millis(1));
        }
        if let Some(error) = slave.status().error {
            assert!(matches!(error, Error::DiskFull { .. }), "{error}");
            refused += 1;
        }
        let kept = recovered_log(&env.copy(), check).unwrap();
        assert!(kept.starts_with(&common_log), "seed {seed}: {} bytes are left", kept.len());
        env.set_fault(None);
        wait_for(&slave, &new_log, check).unwrap();
        slave.close().unwrap();
        assert_eq!(recovered_log(&env, check).unwrap(), new_log);
    }
    assert!(refused > 3, "only {refused} were refused");
}

#[test]
fn a_slave_whose_power_went_while_it_cut_its_log_follows() {
    for seed in 0..12 {
        cut_by_a_slave(None, seed).unwrap();
    }
}

#[test]
fn a_slave_does_not_cut_what_a_writer_has_appended_after_a_power_cut() {
    for seed in 0..20 {
        slave_again_after_a_promotion(None, seed).unwrap();
    }
}

#[test]
fn what_a_killed_slave_had_in_memory_is_durable_once_its_store_is_open() {
    let check = "a store opens after a kill and a power cut";
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let (common, new) = (sizes(&mut random), sizes(&mut random));
        let (log, longer) = (log_of(&common), log_of(&[&common[..], &new].concat()));
        let env = machine();
        let master = Master::of(&log);
        let slave = follow(&env, &master, GEOMETRY.config());
        wait_for(&slave, &log, check).unwrap();
        // A stamp whose time is that of the messages that follow.
        slave.close().unwrap();
        let master = Master::of(&longer);
        let slave = follow_as(&env, &master, GEOMETRY.recorded(), false);
        wait_for(&slave, &longer, check).unwrap();
        let killed = env.kill();
        drop(slave);
        let promoted = open(&killed, GEOMETRY.recorded()).unwrap();
        assert_eq!(promoted.appended_offset(), longer.len() as i64, "seed {seed}");
        let (cut, _) = killed.crash(seed);
        let promoted = open(&cut, GEOMETRY.recorded()).unwrap();
        assert_eq!(promoted.appended_offset(), longer.len() as i64, "seed {seed}");
    }
}

/// The progress of the group in the files of this machine, and the end of its queue, as a reader finds them.
fn progress_and_end(env: &SimulatedEnv, check: &'static str) -> Checked<(i64, i64)> {
    let reader = works(check, MessageReader::open(&env.shared(), root(), GEOMETRY.recorded()))?;
    let offset = match reader.consumer_offsets() {
        Err(Error::NotFound { .. }) => 0,
        read => works(check, read)?.content.first().map_or(0, |progress| progress.offset),
    };
    Ok((offset, works(check, reader.queue_bounds("t", 0))?.end))
}

/// Follows the log, and takes the progress of a group that has consumed all of its messages.
fn take_progress(env: &SimulatedEnv, log: &[u8], messages: usize, is_sync: bool, check: &'static str) -> Checked<Slave> {
    let (master, broker) = (Master::of(log), PlayedBroker::start());
    broker.set_progress("t", messages as i64);
    let options = SlaveOptions {
        broker: Some(broker.address.to_string()),
        ..options_of(&master, GEOMETRY.config(), is_sync)
    };
    let slave = works(check, Slave::start(&env.shared(), root(), options))?;
    wait_for(&slave, log, check)?;
    let begun = Instant::now();
    let taken = || -> Option<i64> {
        let reader = MessageReader::open(&env.shared(), root(), GEOMETRY.recorded()).ok()?;
        Some(reader.consumer_offsets().ok()?.content.first()?.offset)
    };
    while taken() != Some(messages as i64) {
        ensure(begun.elapsed() < LONG, check, || format!("{:?}", slave.settings()))?;
        thread::sleep(Duration::from_millis(1));
    }
    Ok(slave)
}

/// The power goes once a slave, which does not sync before it acknowledges, has taken the progress of a group.
pub(super) fn progress_taken_by_a_slave(without: Option<Step>, seed: u64) -> Checked {
    let check = "progress that a slave has taken never passes its log";
    let sizes = sizes(&mut Random::new(seed));
    let env = machine();
    env.leave_out(without);
    let slave = take_progress(&env, &log_of(&sizes), sizes.len(), false, check)?;
    let (cut, _) = env.crash(seed);
    drop(slave);
    let (offset, end) = progress_and_end(&cut, check)?;
    ensure(offset <= end, check, || format!("{offset} of {end}"))
}

/// The power goes while a slave cuts the messages that a group has consumed.
pub(super) fn progress_cut_by_a_slave(without: Option<Step>, seed: u64) -> Checked {
    let check = "progress never passes a log that a slave cuts";
    let mut random = Random::new(seed);
    let (common, stale) = (sizes(&mut random), sizes(&mut random));
    let old = [&common[..], &stale].concat();
    let new_log = log_of(&[&common[..], &[3]].concat());
    let env = machine();
    works(check, take_progress(&env, &log_of(&old), old.len(), true, check)?.close())?;
    let master = Master::of(&new_log);
    env.leave_out(without);
    env.take_images(seed, 3);
    let slave = follow(&env, &master, GEOMETRY.recorded());
    wait_for(&slave, &new_log, check)?;
    let images = env.taken();
    works(check, slave.close())?;
    env.leave_out(None);
    for image in images {
        let (offset, end) = progress_and_end(&image.env.crash(seed).0, check)?;
        ensure(offset <= end, check, || format!("image {}: {offset} of {end}", image.call))?;
    }
    let (offset, _) = progress_and_end(&env, check)?;
    ensure(offset == common.len() as i64, check, || {
        format!("{offset} of {}", common.len())
    })
}

#[test]
fn progress_that_a_slave_has_taken_never_passes_its_log() {
    for seed in 0..20 {
        progress_taken_by_a_slave(None, seed).unwrap();
    }
}

#[test]
fn progress_never_passes_a_log_that_a_slave_cuts() {
    for seed in 0..12 {
        progress_cut_by_a_slave(None, seed).unwrap();
    }
}

#[test]
fn a_slave_acknowledges_nothing_whose_sync_has_failed() {
    let check = "a slave whose sync has failed";
    let log = log_of(&[500, 900, 300, 2000, 700]);
    // What the slave has before the device fails.
    let half = log_of(&[500, 900, 300]);
    assert!(log.starts_with(&half));
    let env = machine();
    let master = Master::of(&half);
    let slave = follow(&env, &master, GEOMETRY.config());
    wait_for(&slave, &half, check).unwrap();
    slave.close().unwrap();
    let machine = env.clone();
    env.pause_before(Call::Sync(Step::LogRange), move || {
        machine.set_fault(Some(Fault {
            failure: Failure::Device,
            number: 0,
            stays: true,
        }));
    });
    let master = Master::of(&log);
    let slave = follow(&env, &master, GEOMETRY.config());
    let failed = slave.wait(log.len() as i64 - 1, Some(Instant::now() + LONG)).unwrap_err();
    assert!(failed.to_string().contains("Input/output error"), "{failed}");
    let status = slave.status();
    assert_eq!(
        (status.state, status.error.map(|error| error.to_string())),
        (SlaveState::Failed, Some(failed.to_string()))
    );
    // Nothing else is received, synced again or acknowledged, and a power cut takes nothing that was.
    let acknowledged = master.acknowledged.load(Ordering::SeqCst) as usize;
    assert!(acknowledged <= half.len(), "{acknowledged}");
    for seed in 0..8 {
        let left = recovered_log(&env.crash(seed).0, check).unwrap();
        assert!(left.starts_with(&half), "{seed}: {} bytes", left.len());
    }
    let _ = slave.close();
    assert_eq!(env.synced_again(), None);
    env.set_fault(None);
    let slave = follow(&env, &master, GEOMETRY.config());
    wait_for(&slave, &log, check).unwrap();
    slave.close().unwrap();
    assert!(recovered_log(&env.crash(1).0, check).unwrap() == log);
}
