//! A history: the sizes of a store and a list of operations, drawn from one seed. It can be printed, shortened and repeated.

use std::ops::Range;

use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::format::{BatchUnit, Message, encode_properties, encode_unit};

use super::campaign::Drawn;
use crate::simulated_env::Random;

/// Sizes of a store: small enough that a few messages roll every kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) segment: u64,
    pub(super) queue_file: u64,
    pub(super) slots: u64,
    pub(super) items: u64,
    /// Bytes of synced log from one stamp of the checkpoint to the next.
    pub(super) stamped_every: u64,
    /// When an append returns.
    pub(super) flush_disk_type: FlushDiskType,
    /// Number of one-page buffers of the transient store pool; 0 without it.
    pub(super) buffers: usize,
    /// The pages of new segments are written, and with [`FlushDiskType::Sync`] synced, before they are used.
    pub(super) is_warmed: bool,
}

/// The smallest files: two entries fill a queue file, four items an index file with one slot.
pub(super) const TINY: Geometry = Geometry {
    segment: 4096,
    queue_file: 40,
    slots: 1,
    items: 4,
    stamped_every: 64 << 20,
    flush_disk_type: FlushDiskType::Async,
    buffers: 0,
    is_warmed: false,
};

impl Geometry {
    fn draw(random: &mut Random) -> Self {
        Self {
            segment: random.pick(&[4096, 4096, 8192, 16384]),
            queue_file: random.pick(&[40, 60, 100, 400, 1000]),
            slots: random.pick(&[1, 3, 10, 50]),
            items: random.pick(&[2, 3, 7, 30, 80]),
            stamped_every: random.pick(&[1500, 6000, 64 << 20]),
            flush_disk_type: random.pick(&[FlushDiskType::Async, FlushDiskType::Async, FlushDiskType::Sync]),
            buffers: random.pick(&[0, 0, 0, 1, 2, 5]),
            is_warmed: random.pick(&[false, false, true]),
        }
    }

    /// The options with which the store is made.
    pub(super) fn config(self) -> StoreConfig {
        StoreConfig {
            mapped_file_size_commit_log: Some(self.segment),
            mapped_file_size_consume_queue: Some(self.queue_file),
            max_hash_slot_num: Some(self.slots),
            max_index_num: Some(self.items),
            ..self.recorded()
        }
    }

    /// The options with which it is opened again, without sizes: the store has recorded them.
    pub(super) fn recorded(self) -> StoreConfig {
        StoreConfig {
            checkpoint_interval: self.stamped_every,
            flush_disk_type: self.flush_disk_type,
            // Each segment is dropped from the page cache once it is flushed.
            access_message_in_memory_max_ratio: 0,
            transient_store_pool_enable: self.buffers > 0,
            transient_store_pool_size: self.buffers.max(1),
            transient_store_pool_buffer_size: 4096,
            warm_mapped_file_enable: self.is_warmed,
            flush_least_pages_when_warm_mapped_file: 1,
            sigbus_guard: false,
            ..StoreConfig::default()
        }
    }
}

/// One message. `number` makes it different from every other one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Draft {
    number: u64,
    topic: &'static str,
    queue_id: i32,
    body: usize,
    /// Bytes of a property without a meaning: properties longer than a sector can be torn in their middle.
    filler: usize,
    keys: u64,
    is_tagged: bool,
    /// 0: none.
    delay_level: i32,
    sys_flag: i32,
    guise: Guise,
}

/// Ways in which a whole message imitates something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guise {
    None,
    /// Its record ends at a multiple of this many bytes.
    Aligned(usize),
    /// Its body is a record that names the physical offset of that body.
    HoldsRecord,
    /// A property has this many NUL as its value.
    NulValue(usize),
    /// A property has this many NUL as its name.
    NulName(usize),
    /// Its properties end without a separator, in this many NUL.
    NulAtEnd(usize),
}

impl Guise {
    fn draw(random: &mut Random) -> Self {
        let nul = random.pick(&[1, 400, 509, 510]);
        match random.below(10) {
            0 => Self::Aligned(random.pick(&[512, 512, 4096])),
            1 => Self::HoldsRecord,
            2 => Self::NulValue(nul),
            3 => Self::NulName(nul),
            4 => Self::NulAtEnd(nul),
            _ => Self::None,
        }
    }

    /// The property bytes of this imitation.
    fn properties(self, mut properties: Vec<u8>) -> Vec<u8> {
        let (name, value) = match self {
            Self::NulValue(count) | Self::NulAtEnd(count) => ("nul".to_owned(), "\0".repeat(count)),
            Self::NulName(count) => ("\0".repeat(count), "nul".to_owned()),
            Self::None | Self::Aligned(_) | Self::HoldsRecord => return properties,
        };
        let is_ended = !matches!(self, Self::NulAtEnd(_));
        properties.extend(encode_properties([(name.as_str(), value.as_str())], is_ended).unwrap());
        properties
    }
}

impl Draft {
    fn draw(random: &mut Random, number: u64) -> Self {
        Self {
            number,
            topic: random.pick(&["orders", "orders", "orders", "t", "a-topic-whose-name-is-long"]),
            queue_id: random.pick(&[0, 0, 0, 1, 7]),
            body: match random.below(8) {
                0 => 0,
                1 => random.index(2500),
                _ => random.index(300),
            },
            filler: if random.one_in(6) { random.index(1400) } else { 0 },
            keys: random.below(4),
            is_tagged: random.one_in(2),
            delay_level: if random.one_in(10) { 1 + random.below(18) as i32 } else { 0 },
            sys_flag: random.pick(&[0, 0, 0, 0, 0, 0x4, 0x8, 0xc]),
            guise: Guise::draw(random),
        }
    }

    /// The message when the log ends at this offset.
    pub(super) fn message_at(&self, end: i64) -> Message<'static> {
        let mut message = self.message();
        match self.guise {
            Guise::Aligned(to) => {
                let more = (to - (end as usize + message.encoded_len()) % to) % to;
                message.body.to_mut().resize(self.body + more, b'a');
            }
            Guise::HoldsRecord => {
                let held = Message {
                    // The bytes before the body in a record with two IPv4 hosts.
                    physical_offset: end + 88,
                    store_time: 1 << 42,
                    ..self.message()
                };
                message.body = held.encode().unwrap().into();
            }
            _ => {}
        }
        message
    }

    /// The message as its producer makes it.
    pub(super) fn message(&self) -> Message<'static> {
        let mut random = Random::new(self.number);
        // One key that it shares with others, one of its own, and its unique key.
        let own = [format!("shared{}", self.number % 3), format!("key{}", self.number)];
        let mut properties = Vec::new();
        if self.keys > 0 {
            properties.push(("KEYS", own[..self.keys.min(2) as usize].join(" ")));
        }
        if self.keys > 2 {
            properties.push(("UNIQ_KEY", format!("U{}", self.number)));
        }
        if self.is_tagged {
            properties.push(("TAGS", format!("tag{}", self.number % 2)));
        }
        if self.delay_level > 0 {
            properties.push(("DELAY", self.delay_level.to_string()));
        }
        if self.filler > 0 {
            properties.push(("filler", "f".repeat(self.filler)));
        }
        let pairs = properties.iter().map(|(name, value)| (*name, value.as_str()));
        Message {
            topic: self.topic.into(),
            queue_id: self.queue_id,
            sys_flag: self.sys_flag,
            flag: self.number as i32,
            body: (0..self.body).map(|_| random.next() as u8).collect::<Vec<_>>().into(),
            properties: self.guise.properties(encode_properties(pairs, true).unwrap()).into(),
            ..Message::default()
        }
    }

    /// Returns the message as a batch holds it: no delay, no transaction.
    fn of_batch(self) -> Self {
        Self {
            delay_level: 0,
            sys_flag: 0,
            filler: self.filler / 4,
            body: self.body / 4,
            guise: Guise::None,
            ..self
        }
    }
}

/// Messages as a producer sends them in one batch: the shared fields, with all messages in the body.
pub(super) fn producer_batch(drafts: &[Draft]) -> Message<'static> {
    let mut body = Vec::new();
    for draft in drafts {
        let Message {
            flag,
            body: own,
            properties,
            ..
        } = draft.message();
        let (body_of_unit, properties) = (&own, &properties);
        let unit = BatchUnit {
            flag,
            body: body_of_unit,
            properties,
        };
        body.extend(encode_unit(&unit).unwrap());
    }
    Message {
        body: body.into(),
        properties: Vec::new().into(),
        ..drafts[0].message()
    }
}

/// One operation on the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Operation {
    Append(Draft),
    AppendAll(Vec<Draft>),
    ProducerBatch(Vec<Draft>),
    /// A flush; what it returns for is acknowledged.
    Flush,
    /// Waits for the last message to be durable, with the flusher's help.
    WaitDurable,
    /// Steps the dispatcher, with its clock advanced by this many ms.
    Dispatch(u64),
    /// Steps the flusher, with its clock advanced by this many ms.
    FlushStep(u64),
    /// Steps the committer, with its clock advanced by this many ms.
    Commit(u64),
    /// Steps the allocator, and the creation of queue files.
    Allocate,
    /// The next sync lasts this long by the wall clock, which may jump back during it, and another caller appends before it
    /// returns.
    Stall(Draft, i64),
    /// A reader opens the store beside its writer, and looks again when the next one opens.
    Read,
    /// The wall clock jumps by this many ms.
    Clock(i64),
    /// A clean close, and the store is opened again.
    Reopen,
    /// The process is killed, and the store opened again.
    Kill,
    /// The power goes, with this seed, and the store is opened again.
    PowerCut(u64),
}

/// The sizes of a store and the operations on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct History<O = Operation> {
    pub(super) geometry: Geometry,
    pub(super) operations: Vec<O>,
}

impl<O: Drawn> History<O> {
    /// Of up to `longest` operations.
    pub(super) fn draw(seed: u64, longest: usize) -> Self {
        let mut random = Random::new(seed);
        let geometry = Geometry::draw(&mut random);
        let len = 1 + random.index(longest);
        let operations = O::draw(&mut random, len);
        Self { geometry, operations }
    }

    /// Without some of its operations.
    pub(super) fn without(&self, places: Range<usize>) -> Self {
        let mut shorter = self.clone();
        shorter.operations.drain(places);
        shorter
    }
}

impl History {
    /// Every history of up to `longest` operations out of seven that between them touch every file.
    pub(super) fn all_small(longest: u32, flush_disk_type: FlushDiskType, buffers: usize) -> Vec<Self> {
        let geometry = Geometry {
            segment: 4096,
            queue_file: 40,
            slots: 3,
            items: 3,
            stamped_every: 3000,
            flush_disk_type,
            buffers,
            is_warmed: false,
        };
        let draft = |number, body| Draft {
            number,
            topic: "orders",
            queue_id: 0,
            body,
            filler: 0,
            keys: 3,
            is_tagged: true,
            delay_level: 0,
            sys_flag: 0,
            guise: Guise::None,
        };
        let operation = |place: u64, choice: usize| match choice {
            0 => Operation::Append(draft(10 * place, 100)),
            1 => Operation::AppendAll((1..4).map(|n| draft(10 * place + n, 1500)).collect()),
            2 => Operation::Flush,
            3 => Operation::Dispatch(20),
            4 => Operation::Reopen,
            5 => Operation::Kill,
            _ => Operation::PowerCut(place),
        };
        let mut all = vec![Vec::new()];
        let mut last = all.clone();
        for place in 0..u64::from(longest) {
            let longer = |shorter: &Vec<Operation>| {
                let shorter = shorter.clone();
                (0..7).map(move |choice| [shorter.clone(), vec![operation(place, choice)]].concat())
            };
            last = last.iter().flat_map(longer).collect();
            all.extend(last.clone());
        }
        all.into_iter().map(|operations| Self { geometry, operations }).collect()
    }
}

fn drafts(random: &mut Random, number: &mut u64, most: u64) -> Vec<Draft> {
    let count = 1 + random.below(most);
    (0..count).map(|_| draft(random, number)).collect()
}

fn draft(random: &mut Random, number: &mut u64) -> Draft {
    *number += 1;
    Draft::draw(random, *number)
}

/// Draws operations.
pub(super) fn operations(random: &mut Random, count: usize) -> Vec<Operation> {
    let mut number = 0;
    (0..count).map(|_| operation(random, &mut number)).collect()
}

fn operation(random: &mut Random, number: &mut u64) -> Operation {
    match random.below(48) {
        0..12 => Operation::Append(draft(random, number)),
        12..16 => Operation::AppendAll(drafts(random, number, 12)),
        16..18 => {
            let drafts = drafts(random, number, 4);
            Operation::ProducerBatch(drafts.into_iter().map(Draft::of_batch).collect())
        }
        18..22 => Operation::Flush,
        22..24 => Operation::WaitDurable,
        24..29 => Operation::Dispatch(random.pick(&[0, 0, 5, 20])),
        29..32 => Operation::FlushStep(random.pick(&[0, 400, 600])),
        32..34 => Operation::Clock(random.pick(&[1, 1000, 10_000, -5000])),
        34..36 => Operation::Reopen,
        36..38 => Operation::Kill,
        38..40 => Operation::PowerCut(random.next()),
        40..43 => Operation::Stall(draft(random, number), random.pick(&[15, 700, 5000, -3000, 3_600_000])),
        43..45 => Operation::Read,
        45..47 => Operation::Allocate,
        _ => Operation::Commit(random.pick(&[0, 200, 400])),
    }
}
