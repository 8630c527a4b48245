//! The bytes of one file, twice: as every process sees them, and as a power cut leaves them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mqstore::storage::Region;

use super::random::Random;

/// The unit that a disk writes at once, or tears.
pub(crate) const SECTOR: usize = 512;
/// The unit that the kernel marks clean at once when a sync has failed: a block of the file system, which is at most a page. A write of
/// one byte makes the whole block dirty again. The smallest block (xfs) hides the fewest mistakes.
const BLOCK: usize = SECTOR;

/// The fate of the sectors that no sync has covered, after a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// Each sector alone: the old bytes or the new ones.
    Any,
    /// No sector arrived.
    All,
    /// All arrived, as after a kill that lasted.
    Nothing,
    /// Each sector alone, or torn: its first bytes are new and its last bytes old, or the other way round.
    Torn,
    /// Torn, and what was being changed in a torn sector may be any byte.
    Garbage,
}

/// The bytes that processes see, on the heap, where a [`Region`] points at them.
#[derive(Debug)]
struct Live {
    words: Arc<[AtomicU64]>,
    /// All of `words`.
    region: Region,
}

impl Live {
    fn new(capacity: usize) -> Self {
        let words: Arc<[AtomicU64]> = (0..capacity.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        let region = Region::on_heap(words.clone(), words.len() * 8).unwrap();
        Self { words, region }
    }

    fn copy(&self) -> Self {
        let words: Arc<[AtomicU64]> = self
            .words
            .iter()
            .map(|word| AtomicU64::new(word.load(Ordering::Relaxed)))
            .collect();
        let region = Region::on_heap(words.clone(), words.len() * 8).unwrap();
        Self { words, region }
    }

    fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.region.bytes(range).unwrap()
    }

    /// Regions other than the own one.
    fn mappings(&self) -> usize {
        Arc::strong_count(&self.words) - 2
    }
}

/// A regular file.
#[derive(Debug)]
pub(super) struct Image {
    len: usize,
    /// `None` while nobody has written or mapped the file since the machine started: then it is as on the disk.
    live: Option<Live>,
    durable: Arc<Vec<u8>>,
    /// The file was not opened for writing since the machine started. Then, as on overlayfs, the first open for writing gets a
    /// copy, and earlier mappings keep showing the old file.
    is_lower: bool,
    /// The blocks that a failed sync left unwritten, with their old bytes: the kernel marks them clean, so no later sync
    /// covers them until they are written again.
    forgotten: BTreeMap<usize, Box<[u8]>>,
}

impl Image {
    pub(super) fn new() -> Self {
        Self {
            is_lower: false,
            ..Self::of(Arc::default())
        }
    }

    fn of(durable: Arc<Vec<u8>>) -> Self {
        Self {
            len: durable.len(),
            live: None,
            durable,
            is_lower: true,
            forgotten: BTreeMap::new(),
        }
    }

    /// Returns the same file for another machine.
    pub(super) fn copy(&self) -> Self {
        Self {
            len: self.len,
            live: self.live.as_ref().map(Live::copy),
            durable: self.durable.clone(),
            is_lower: true,
            forgotten: self.forgotten.clone(),
        }
    }

    /// Somebody opens the file for writing.
    pub(super) fn copy_up(&mut self) {
        if std::mem::take(&mut self.is_lower) {
            self.live = self.live.as_ref().map(Live::copy);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the file as processes see it.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.live {
            Some(live) => live.bytes(0..self.len),
            None => &self.durable,
        }
    }

    /// The first bytes of the file as memory; `None` past its end.
    pub(super) fn map(&mut self, len: usize) -> Option<Region> {
        if len > self.len {
            return None;
        }
        let words = self.live(0).words.clone();
        Region::on_heap(words, len)
    }

    /// Grows the file with zeros.
    pub(super) fn grow(&mut self, len: usize) {
        if len > self.len {
            self.live(len);
            self.len = len;
        }
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        self.grow(at + bytes.len());
        assert!(self.live(0).region.write(at, bytes));
        for block in blocks(&(at..at + bytes.len())) {
            self.forgotten.remove(&block);
        }
    }

    /// Makes exactly these bytes durable, and the length. The bytes beside them stay as they are.
    pub(super) fn sync(&mut self, range: Range<usize>) {
        let range = range.start.min(self.len)..range.end.min(self.len);
        let Some(live) = &self.live else { return };
        let durable = Arc::make_mut(&mut self.durable);
        durable.resize(self.len, 0);
        if self.forgotten.is_empty() {
            durable[range.clone()].copy_from_slice(live.bytes(range));
            return;
        }
        for block in blocks(&range) {
            let part = part_of_block(block, &range);
            let whole = part_of_block(block, &(0..self.len));
            if self
                .forgotten
                .get(&block)
                .is_some_and(|left| left.as_ref() == live.bytes(whole))
            {
                continue;
            }
            self.forgotten.remove(&block);
            durable[part.clone()].copy_from_slice(live.bytes(part));
        }
    }

    /// A sync that fails: what it was to write is called clean from now on.
    pub(super) fn fail_sync(&mut self, range: Range<usize>) {
        let range = range.start.min(self.len)..range.end.min(self.len);
        let Some(live) = &self.live else { return };
        for block in blocks(&range) {
            let whole = part_of_block(block, &(0..self.len));
            let bytes = live.bytes(whole.clone());
            if self.durable.get(whole) != Some(bytes) {
                self.forgotten.insert(block, bytes.into());
            }
        }
    }

    /// Returns true if a power cut could lose anything.
    pub(super) fn is_durable(&self) -> bool {
        self.live.is_none() || self.bytes() == self.durable.as_slice()
    }

    /// The file after a power cut. `told` hears what became of each sector that no sync had covered.
    pub(super) fn crashed(&self, loss: Loss, random: &mut Random, told: &mut dyn FnMut(Decision)) -> Self {
        if self.is_durable() {
            return Self::of(self.durable.clone());
        }
        let is_long = match loss {
            Loss::All => false,
            Loss::Nothing => true,
            Loss::Any | Loss::Torn | Loss::Garbage => random.one_in(2),
        };
        let mut bytes = self.durable.to_vec();
        if self.len != bytes.len() {
            told(Decision::Length(is_long));
            if is_long {
                bytes.resize(self.len, 0);
            }
        }
        let live = self.bytes();
        for (number, old) in bytes.chunks_mut(SECTOR).enumerate() {
            let start = number * SECTOR;
            let new = &live[start..start + old.len()];
            if new == old {
                continue;
            }
            let fate = match loss {
                Loss::All => Fate::Old,
                Loss::Nothing => Fate::New,
                Loss::Any => random.pick(&[Fate::Old, Fate::New, Fate::New]),
                Loss::Torn => random.pick(&[Fate::Old, Fate::New, Fate::New, Fate::Torn]),
                Loss::Garbage => random.pick(&[Fate::Old, Fate::New, Fate::New, Fate::Spoiled]),
            };
            arrive(fate, old, new, random);
            told(Decision::Sector(start, fate));
        }
        Self::of(Arc::new(bytes))
    }

    /// The live bytes, with room for `len` of them.
    fn live(&mut self, len: usize) -> &Live {
        let wanted = len.max(self.len);
        if self.live.as_ref().is_none_or(|live| live.region.len() < wanted) {
            assert!(
                self.live.as_ref().is_none_or(|live| live.mappings() == 0),
                "a file that grows while it is mapped needs its length first"
            );
            let live = Live::new(wanted.next_multiple_of(BLOCK));
            assert!(live.region.write(0, self.bytes()));
            self.live = Some(live);
        }
        self.live.as_ref().unwrap()
    }
}

/// The fate of one sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Old,
    New,
    /// Its first bytes are new and its last bytes old, or the other way round.
    Torn,
    /// Torn, and the bytes that were being changed may be anything.
    Spoiled,
}

/// The changes that a power cut made to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// True if the new length arrived.
    Length(bool),
    /// The fate of the sector that starts there.
    Sector(usize, Fate),
}

fn arrive(fate: Fate, old: &mut [u8], new: &[u8], random: &mut Random) {
    let cut = random.index(new.len() + 1);
    match fate {
        Fate::Old => {}
        Fate::New => old.copy_from_slice(new),
        Fate::Torn if random.one_in(2) => old[..cut].copy_from_slice(&new[..cut]),
        Fate::Torn => old[cut..].copy_from_slice(&new[cut..]),
        Fate::Spoiled => {
            // Bytes that were not being changed keep their value: what was durable beside them stays.
            let end = cut + random.index(new.len() - cut + 1);
            for (at, old) in old.iter_mut().enumerate().filter(|(at, old)| **old != new[*at]) {
                if at < cut {
                    *old = new[at];
                } else if at < end {
                    *old = random.next() as u8;
                }
            }
        }
    }
}

fn blocks(range: &Range<usize>) -> Range<usize> {
    if range.is_empty() {
        return 0..0;
    }
    range.start / BLOCK..range.end.div_ceil(BLOCK)
}

fn part_of_block(block: usize, of: &Range<usize>) -> Range<usize> {
    of.start.max(block * BLOCK)..of.end.min((block + 1) * BLOCK)
}
