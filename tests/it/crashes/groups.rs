//! Consumer groups and transactions under crashes and failing calls: what groups are given and acknowledge, what their progress says,
//! and how transactions end.

mod history;
mod judge;
mod run;
mod transactions;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use mqstore::broker::{BrokerController, Consumer, Start};
use mqstore::read::StoredMessage;
use mqstore::storage::Step;
use mqstore::store::MessageStore;

use super::campaign::{Plan, assert_none_fails, at_least, seeds};
use super::examine::{Care, dispatch_all, root};
use super::files::Files;
use super::model::{Checked, ensure, works};
use super::run::machine;
use super::scenes::{GEOMETRY, message, open};
use history::{GROUPS, Operation};
use judge::written;

use crate::simulated_env::SimulatedEnv;

#[test]
fn groups_get_every_message_and_repeat_none_that_is_settled() {
    let plan = Plan {
        longest: 60,
        one_in: 20,
        care: Care { deep: 0, one_in: 4 },
        without: None,
    };
    let test = "groups_get_every_message_and_repeat_none_that_is_settled";
    let counts = assert_none_fails::<Operation>(test, seeds(3_000_000, 2000), plan);
    let counts = [
        &counts.images,
        &counts.given,
        &counts.again,
        &counts.delivered,
        &counts.ended,
        &counts.refused,
    ];
    let [images, given, again, delivered, ended, refused] = counts.map(|count| count.load(Ordering::Relaxed));
    println!("crash images: {images}; messages given: {given}, of these again: {again}; delayed and delivered: {delivered}");
    println!("transactions ended: {ended}, and ends refused: {refused}");
    assert!(images >= at_least(10_000), "{images} images");
    assert!(
        given >= at_least(20_000) && again >= at_least(40),
        "{given} given, {again} again"
    );
    assert!(delivered >= at_least(10_000), "{delivered} delivered");
    assert!(
        ended >= at_least(1000) && refused >= at_least(30),
        "{ended} ended, {refused} refused"
    );
}

/// A machine with a store of some messages, and a consumer that was given all of them.
struct Scene {
    env: SimulatedEnv,
    store: Arc<MessageStore>,
    broker: BrokerController,
    consumer: Arc<Consumer>,
    given: Vec<StoredMessage>,
}

impl Scene {
    fn begin(env: SimulatedEnv, messages: usize) -> Checked<Self> {
        let check = "a consumer is given messages";
        let store = Arc::new(works(check, open(&env, GEOMETRY.config()))?);
        for len in 0..messages {
            works(check, store.append(message(len)))?;
        }
        Self::consume(env, store)
    }

    fn consume(env: SimulatedEnv, store: Arc<MessageStore>) -> Checked<Self> {
        let check = "a consumer is given messages";
        works(check, dispatch_all(&store))?;
        let broker = BrokerController::new_stepped(&store);
        let group = &GROUPS[0];
        let joined = broker.consumer(Some(group.name), group.subscription(), &Start::Earliest);
        let consumer = Arc::new(works(check, joined)?);
        let given = works(check, consumer.take(32, Instant::now()))?;
        Ok(Self {
            env,
            store,
            broker,
            consumer,
            given,
        })
    }

    /// The progress in the file after a power cut.
    fn after_a_power_cut(&self, seed: u64) -> Checked<Option<i64>> {
        let (cut, _) = self.env.crash(seed);
        let progress = written(&Files::of(&cut, root()))?;
        Ok(progress.get(&(0, ("t".to_owned(), 0))).copied())
    }
}

/// A group commits its progress, and the power goes.
pub(super) fn committed_progress(without: Option<Step>, seed: u64) -> Checked {
    let check = "progress that was committed durably survives a power cut";
    let env = machine();
    env.leave_out(without);
    let scene = Scene::begin(env, 2)?;
    for offset in 0..2 {
        works(check, scene.consumer.ack([("t", 0, offset)]))?;
        works(check, scene.consumer.commit())?;
        let committed = scene.after_a_power_cut(2 * seed + offset as u64)?;
        ensure(committed == Some(offset + 1), check, || {
            format!("{committed:?} after {offset}")
        })?;
    }
    Ok(())
}

#[test]
fn progress_that_was_committed_durably_survives_a_power_cut() {
    for seed in 0..50 {
        committed_progress(None, seed).unwrap();
    }
}

#[test]
fn the_start_of_a_group_survives_a_power_cut_with_what_lies_before_it() {
    for seed in 0..50 {
        let env = machine();
        let store = Arc::new(open(&env, GEOMETRY.config()).unwrap());
        for len in 0..3 {
            store.append(message(len)).unwrap();
        }
        dispatch_all(&store).unwrap();
        let broker = BrokerController::new_stepped(&store);
        let group = &GROUPS[0];
        broker
            .consumer(Some(group.name), group.subscription(), &Start::Latest)
            .unwrap();
        let (cut, _) = env.crash(seed);
        let progress = written(&Files::of(&cut, root())).unwrap();
        assert_eq!(progress.get(&(0, ("t".to_owned(), 0))), Some(&3));
        // The group subscribes to a topic without queues, too.
        assert_eq!(progress.get(&(0, ("u".to_owned(), 0))), Some(&0));
        let cut = open(&cut, GEOMETRY.recorded()).unwrap();
        assert_eq!(cut.reader().queue_bounds("t", 0).unwrap(), 0..3);
    }
}

#[test]
fn a_commit_makes_progress_durable_that_a_killed_process_wrote() {
    for seed in 0..50 {
        let mut scene = Scene::begin(machine(), 3).unwrap();
        scene.consumer.ack([("t", 0, 0)]).unwrap();
        // The process is killed before the new name of the file is durable.
        scene.env.leave_out(Some(Step::SettingsRenamed));
        scene.consumer.commit().unwrap();
        let killed = scene.env.kill();
        let store = Arc::new(open(&killed, GEOMETRY.recorded()).unwrap());
        scene = Scene::consume(killed, store).unwrap();
        assert_eq!(scene.given.len(), 2);
        scene.consumer.commit().unwrap();
        assert_eq!(scene.after_a_power_cut(seed).unwrap(), Some(1));
    }
}

#[test]
fn a_message_sent_back_during_a_flush_is_not_passed_by_that_commit() {
    for seed in 0..50 {
        let scene = Scene::begin(machine(), 2).unwrap();
        scene.consumer.ack([("t", 0, 0)]).unwrap();
        scene.store.append(message(9)).unwrap();
        let (consumer, given) = (scene.consumer.clone(), scene.given[1].clone());
        scene.env.stall(&[Step::LogRange], move |_| {
            assert!(consumer.nack(&given.view(), None, Instant::now()).unwrap());
        });
        scene.consumer.commit().unwrap();
        assert_eq!(scene.consumer.positions().unwrap()[0].committed, 2);
        assert_eq!(scene.after_a_power_cut(seed).unwrap(), Some(1));
        scene.broker.close().unwrap();
        scene.store.close().unwrap();
        assert_eq!(scene.after_a_power_cut(seed).unwrap(), Some(2));
    }
}
