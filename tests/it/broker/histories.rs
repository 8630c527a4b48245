//! Random histories of a store whose services run step by step, with power cuts and kills: the loop that each model shares.

use std::fmt::Debug;

use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::format::Message;
use mqstore::storage::Step;

use super::delay::{Stepped, machine};
use crate::simulated_env::{Random, SimulatedEnv};

const OPERATIONS: usize = 40;
/// One of this many changing calls is preceded by a power cut, or a kill, on a copy of the machine.
const IMAGE_ONE_IN: u64 = 25;
/// The most by which the clock is behind, in ms: less than the lead of a store time for which a delayed message waits.
const MOST_BEHIND: u64 = 9000;

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Close,
    Kill,
    PowerCut,
}

/// A call that each model has.
#[derive(Debug, Clone, Copy)]
enum Shared {
    Plain,
    Pass,
    Clock,
    Dispatch,
    Commit,
    Flush,
    End(End),
}

/// The calls that each model has, each as often as it is drawn.
const SHARED: [Shared; 10] = [
    Shared::Plain,
    Shared::Pass,
    Shared::Pass,
    Shared::Clock,
    Shared::Dispatch,
    Shared::Commit,
    Shared::Flush,
    Shared::End(End::Close),
    Shared::End(End::Kill),
    Shared::End(End::PowerCut),
];

/// A call of a history: of its model, or of all models.
#[derive(Debug, Clone, Copy)]
enum Operation<O> {
    Own(O),
    Shared(Shared),
}

/// The results of the calls so far, and the judge of the log.
pub(super) trait Model: Clone {
    type Own: Debug + Copy + 'static;
    /// The calls of the model, each as often as it is drawn. Those of [`SHARED`] are drawn beside them.
    const LIKELY: &'static [Self::Own];
    /// The longest time in ms that passes at once.
    const LONGEST_PASS: u64;

    /// Appends the first message, because a log whose start is lost is refused.
    fn begin(open: &Stepped) -> Self;

    /// Carries out one call.
    fn carry_out(&mut self, open: &mut Stepped, own: Self::Own, random: &mut Random);

    /// Notes that everything appended is durable.
    fn note_flushed(&mut self) {}

    /// Called before the process or the history ends: the disk must have room then.
    fn before_end(&mut self, _open: &Stepped) {}

    /// Returns true if a commit or flush would fail now.
    fn is_full(&self) -> bool {
        false
    }

    /// Compares the log with what calls have returned. After a crash what was not durable leaves the model.
    fn check(&mut self, open: &Stepped, after_crash: bool) -> Result<(), String>;

    /// Judges what a crash has left, on a copy of the machine.
    fn examine(self, env: SimulatedEnv, config: StoreConfig) -> Result<(), String>;

    /// Brings everything that waits to its end.
    fn finish(&mut self, open: &mut Stepped) -> Result<(), String>;
}

/// Carries out one history, and examines the machines that crashes leave on the way. `without` leaves a step out.
pub(super) fn carry_out<M: Model>(seed: u64, config: &StoreConfig, without: Option<Step>) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut open = Stepped::open(machine(), config.clone()).unwrap();
    let mut model = M::begin(&open);
    let mut behind = 0;
    open.store.flush().unwrap();
    model.note_flushed();
    open.env.leave_out(without);
    set_camera(&open.env, &mut random);
    for _ in 0..OPERATIONS {
        let operation = draw::<M>(&mut random);
        let before = model.clone();
        match operation {
            Operation::Own(own) => model.carry_out(&mut open, own, &mut random),
            Operation::Shared(Shared::Plain) => append_plain(&open, &mut random),
            Operation::Shared(Shared::Pass) => open.pass(random.below(M::LONGEST_PASS) as i64),
            Operation::Shared(Shared::Clock) => set_behind(&open.env, &mut behind, &mut random),
            Operation::Shared(Shared::Dispatch) => open.dispatch(),
            Operation::Shared(Shared::Commit) if !model.is_full() => open.store.commit().unwrap(),
            Operation::Shared(Shared::Flush) if !model.is_full() => {
                open.store.flush().unwrap();
                model.note_flushed();
            }
            Operation::Shared(Shared::Commit | Shared::Flush) => {}
            Operation::Shared(Shared::End(how)) => {
                model.before_end(&open);
                open = end(open, how, &mut random, config, &mut model, &mut behind)?;
                open.env.leave_out(without);
            }
        }
        for image in open.env.taken() {
            let seed = image.seed;
            image.env.set_fault(None);
            let judged = before.clone().examine(image.env, config.clone());
            judged.map_err(|error| format!("{operation:?}, image {seed}: {error}"))?;
        }
        set_camera(&open.env, &mut random);
        let checked = model.check(&open, false);
        checked.map_err(|error| format!("{operation:?}: {error}"))?;
    }
    model.before_end(&open);
    model.finish(&mut open)
}

fn draw<M: Model>(random: &mut Random) -> Operation<M::Own> {
    let number = random.index(M::LIKELY.len() + SHARED.len());
    let own = M::LIKELY.get(number).map(|own| Operation::Own(*own));
    own.unwrap_or_else(|| Operation::Shared(SHARED[number - M::LIKELY.len()]))
}

/// Carries out many histories in each write mode, which are the given settings with another one.
pub(super) fn carry_out_each<M: Model>(histories: u64, settings: &StoreConfig) {
    for (number, mode) in modes(settings).iter().enumerate() {
        for seed in 0..histories {
            if let Err(error) = carry_out::<M>(seed, mode, None) {
                panic!("write mode {number}, seed {seed}: {error}");
            }
        }
    }
}

/// Returns true if one of the histories fails without a step.
pub(super) fn is_noticed<M: Model>(histories: u64, settings: &StoreConfig, without: Step) -> bool {
    (0..histories).any(|seed| carry_out::<M>(seed, settings, Some(without)).is_err())
}

/// Sets the clock back by a time that is drawn, or corrects it.
fn set_behind(env: &SimulatedEnv, behind: &mut i64, random: &mut Random) {
    let drawn = if random.one_in(3) {
        0
    } else {
        random.below(MOST_BEHIND) as i64
    };
    env.set_now(env.now() + std::mem::replace(behind, drawn) - drawn);
}

/// Ends the process, and opens the store again. The clock may be set in between.
fn end<M: Model>(
    open: Stepped,
    how: End,
    random: &mut Random,
    config: &StoreConfig,
    model: &mut M,
    behind: &mut i64,
) -> Result<Stepped, String> {
    let crashed = match how {
        End::Close => {
            let open = open.reopened(config.clone());
            model.note_flushed();
            return Ok(open);
        }
        End::Kill => open.env.kill(),
        End::PowerCut => {
            let (crashed, _) = open.env.crash(random.next());
            open.env.stop();
            crashed
        }
    };
    if random.one_in(2) {
        set_behind(&crashed, behind, random);
    }
    model.clone().examine(crashed.copy(), config.clone())?;
    let open = Stepped::open(crashed, config.clone()).map_err(|error| error.to_string())?;
    model.check(&open, true)?;
    Ok(open)
}

/// Appends a message of another topic. A full disk may refuse it.
fn append_plain(open: &Stepped, random: &mut Random) {
    let plain = Message {
        topic: "plain".into(),
        body: vec![b'p'; random.index(3000)].into(),
        ..Message::default()
    };
    drop(open.store.appender(Some(false)).append(plain));
}

fn set_camera(env: &SimulatedEnv, random: &mut Random) {
    if random.one_in(2) {
        env.take_images(random.next(), IMAGE_ONE_IN);
    } else {
        env.take_kills(random.next(), IMAGE_ONE_IN);
    }
}

fn modes(settings: &StoreConfig) -> [StoreConfig; 3] {
    let with_pool = StoreConfig {
        transient_store_pool_enable: true,
        transient_store_pool_buffer_size: 4096,
        ..settings.clone()
    };
    let sync = StoreConfig {
        flush_disk_type: FlushDiskType::Sync,
        transient_store_pool_buffer_size: 4096,
        sync_flush_timeout: 10,
        ..settings.clone()
    };
    [settings.clone(), with_pool, sync]
}
