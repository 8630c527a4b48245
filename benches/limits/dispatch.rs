//! The dispatch kernel: a queue entry and an index item for each record of a log in memory, written to prefaulted memory.

use mqstore::format::IndexGeometry;

const HEADER: usize = 88;

/// Index items and slots in memory, in the form of an index file.
pub struct IndexKernel {
    slots: Vec<u32>,
    items: Vec<[u8; 20]>,
    geometry: IndexGeometry,
    next: u32,
}

impl IndexKernel {
    pub fn new(geometry: IndexGeometry) -> Self {
        Self {
            slots: written(geometry.slots, 0),
            items: written(geometry.items, [0; 20]),
            geometry,
            next: 1,
        }
    }

    /// Puts one key. A full file starts again.
    #[inline(always)]
    pub fn put(&mut self, key_hash: i32, physical_offset: i64, seconds: i32) {
        if self.next >= self.geometry.items {
            self.next = 1;
            self.slots.fill(0);
        }
        let slot = &mut self.slots[self.geometry.slot_of(key_hash) as usize];
        let item = &mut self.items[self.next as usize];
        item[0..4].copy_from_slice(&key_hash.to_be_bytes());
        item[4..12].copy_from_slice(&physical_offset.to_be_bytes());
        item[12..16].copy_from_slice(&seconds.to_be_bytes());
        item[16..20].copy_from_slice(&slot.to_be_bytes());
        *slot = self.next;
        self.next += 1;
    }
}

/// The chains that are followed at once.
const CHAINS: usize = 32;

impl IndexKernel {
    /// Follows the chains of these hashes to their ends; returns the number of items with one of them.
    pub fn find_all(&self, hashes: &[i32]) -> usize {
        let mut found = 0;
        for hashes in hashes.chunks(CHAINS) {
            let slot = |hash: &i32| (*hash, self.slots[self.geometry.slot_of(*hash) as usize]);
            let mut chains: Vec<(i32, u32)> = hashes.iter().map(slot).collect();
            while !chains.is_empty() {
                let items: Vec<[u8; 20]> = chains.iter().map(|(_, number)| self.items[*number as usize]).collect();
                let mut items = items.iter();
                chains.retain_mut(|(hash, number)| {
                    let item = items.next().unwrap();
                    let is_item = *number != 0;
                    found += usize::from(is_item && item[0..4] == hash.to_be_bytes());
                    *number = u32::from_be_bytes(item[16..20].try_into().unwrap());
                    is_item
                });
            }
        }
        found
    }
}

/// Queue entries and index in memory.
pub struct DispatchKernel {
    queue: Vec<[u8; 20]>,
    index: IndexKernel,
    next: usize,
}

impl DispatchKernel {
    pub fn new(geometry: IndexGeometry) -> Self {
        Self {
            queue: written(geometry.items, [0; 20]),
            index: IndexKernel::new(geometry),
            next: 0,
        }
    }

    /// Dispatches the records of `log`, whose properties are one key and one tag; returns their number.
    pub fn run(&mut self, mut log: &[u8]) -> usize {
        let mut count = 0;
        while let Some(size) = log.first_chunk().map(|size| u32::from_be_bytes(*size) as usize) {
            if size == 0 {
                break;
            }
            self.dispatch(&log[..size]);
            log = &log[size..];
            count += 1;
        }
        count
    }

    #[inline(always)]
    fn dispatch(&mut self, record: &[u8]) {
        let number = |at: usize| i64::from_be_bytes(record[at..at + 8].try_into().unwrap());
        let body = u32::from_be_bytes(record[84..88].try_into().unwrap()) as usize;
        let rest = &record[HEADER + body..];
        let (topic, properties) = rest[1..].split_at(usize::from(rest[0]));
        let (mut key, mut tags) = (&[][..], &[][..]);
        for property in properties[2..].split(|byte| *byte == 2) {
            let mut parts = property.split(|byte| *byte == 1);
            match (parts.next(), parts.next()) {
                (Some(b"KEYS"), Some(value)) => key = value,
                (Some(b"TAGS"), Some(value)) => tags = value,
                _ => {}
            }
        }
        let (offset, time) = (number(28), number(56));
        let entry = &mut self.queue[self.next % self.index.geometry.items as usize];
        self.next += 1;
        entry[0..8].copy_from_slice(&offset.to_be_bytes());
        entry[8..12].copy_from_slice(&record[0..4]);
        entry[12..20].copy_from_slice(&i64::from(hash(0, tags)).to_be_bytes());
        let key = hash(hash(hash(0, topic), b"#"), key);
        self.index.put(key.wrapping_abs(), offset, (time / 1000) as i32);
    }
}

/// Allocates prefaulted memory. Zeroed memory has no pages before it is written.
fn written<T: Copy>(count: u32, value: T) -> Vec<T> {
    let mut memory = Vec::with_capacity(count as usize);
    memory.extend((0..count).map(|_| std::hint::black_box(value)));
    memory
}

/// Continues a `String.hashCode` with ASCII text.
#[inline(always)]
pub fn hash(before: i32, text: &[u8]) -> i32 {
    text.iter()
        .fold(before, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(*byte)))
}
