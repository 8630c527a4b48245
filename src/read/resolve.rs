//! Resolving many keys in one pass: each index file once, each stretch without an index once.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::{Check, DispatchRequest, IndexGeometry, MessageView, index_key_hash, is_salvage_record};
use crate::interrupt;
use crate::log::{IndexFile, LogRecord, Source};
use crate::read::message_reader::{MessageReader, Position};
use crate::read::query::has_hash;
use crate::read::unreadable::{Unread, first_damage};

/// Where one message with a key lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHit {
    /// Its queue.
    pub queue_id: i32,
    /// Its offset in that queue.
    pub queue_offset: i64,
    /// Its record's first byte.
    pub physical_offset: i64,
    /// Its record's bytes.
    pub store_size: i32,
}

impl KeyHit {
    fn of(view: &MessageView<'_>) -> Self {
        Self {
            queue_id: view.queue_id(),
            queue_offset: view.queue_offset(),
            physical_offset: view.physical_offset(),
            store_size: view.size() as i32,
        }
    }
}

/// Hits of each wanted pair, by physical offset.
type Hits = Vec<BTreeMap<i64, KeyHit>>;

impl MessageReader {
    /// As [`MessageReader::position`], and `None` where the entry is damaged or its segment is missing, too: one of many rows does not end
    /// the others.
    ///
    /// # Errors
    /// As [`MessageReader::queue_ids`], and [`Error::Io`].
    pub fn resolve_offset(&self, topic: &str, queue_id: i32, queue_offset: i64) -> Result<Option<Position>> {
        interrupt::check()?;
        match self.position(topic, queue_id, queue_offset) {
            Ok(Some(position)) if self.log().holds(position.physical_offset)? => Ok(Some(position)),
            Ok(_) | Err(Error::Corrupt { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// For each `(topic, key)`: every message with it, ascending by physical offset. With [`Errors::Skip`] damaged messages are left out; where no
    /// index serves, so are those in the same segment after them that stand in no queue.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where a part of the log that had to be looked at cannot be read, unless that is skipped; [`Error::Io`].
    pub fn resolve_keys(&self, wanted: &[(&str, &str)], errors: Errors) -> Result<Vec<Vec<KeyHit>>> {
        let mut hits: Hits = vec![BTreeMap::new(); wanted.len()];
        let mut by_name: HashMap<&str, HashMap<&str, Vec<usize>>> = HashMap::new();
        for (row, (topic, key)) in wanted.iter().enumerate() {
            interrupt::check()?;
            by_name.entry(topic).or_default().entry(key).or_default().push(row);
        }
        for source in self.index().sources(self.physical_bounds())? {
            self.resolve_from(&source, &by_name, errors, &mut hits)?;
        }
        Ok(hits.into_iter().map(|hits| hits.into_values().collect()).collect())
    }

    fn resolve_from(
        &self,
        source: &Source,
        by_name: &HashMap<&str, HashMap<&str, Vec<usize>>>,
        errors: Errors,
        hits: &mut Hits,
    ) -> Result<()> {
        let mut add = |view: &MessageView<'_>| {
            let topic = view.topic();
            let Some(keys) = by_name.get(topic.as_ref()) else { return };
            let own = DispatchRequest::of(view).index_keys(false);
            for row in own.filter_map(|key| keys.get(key.as_ref())).flatten() {
                if let Some(hits) = hits.get_mut(*row) {
                    hits.insert(view.physical_offset(), KeyHit::of(view));
                }
            }
        };
        if let Source::Index(file, geometry, range) = source
            && let Some(offsets) = indexed(file, *geometry, by_name)?
            && self.add_indexed(
                offsets.into_iter().filter(|(offset, _)| range.contains(offset)),
                errors,
                &mut add,
            )?
        {
            return Ok(());
        }
        let unread = self.walk_source(source, |message| add(&message.view()))?;
        let Some(damage) = first_damage(&unread) else {
            return Ok(());
        };
        self.skip(damage.clone(), errors)?;
        let mut unread = Unread::new();
        by_name
            .keys()
            .try_for_each(|topic| self.visit_queued(topic, &source.range(), &mut unread, |message| add(&message.view())))
    }

    /// Passes the messages at these offsets on; `false` if no record with the hash starts at one of them: then the index is damaged, and
    /// the log must be walked.
    fn add_indexed(
        &self,
        items: impl Iterator<Item = (i64, i32)>,
        errors: Errors,
        add: &mut impl FnMut(&MessageView<'_>),
    ) -> Result<bool> {
        for (offset, hash) in items {
            interrupt::check()?;
            match self.log().read(offset, Check::Body)? {
                LogRecord::Message(message) if has_hash(&message.view(), hash) => add(&message.view()),
                LogRecord::Message(message) if is_salvage_record(&message.view()) => {}
                LogRecord::Missing if self.log().is_removed(offset) => {}
                LogRecord::Corrupt(error) => self.skip(error, errors)?,
                LogRecord::Message(_)
                | LogRecord::NoRecord(_)
                | LogRecord::Blank { .. }
                | LogRecord::End
                | LogRecord::Missing => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Passes over damage where that is asked for.
    fn skip(&self, damage: Error, errors: Errors) -> Result<()> {
        match (damage, errors) {
            (Error::Corrupt { .. }, Errors::Skip) => Ok(()),
            (damage, _) => Err(self.advise(damage)),
        }
    }
}

/// Where the file has items with the hashes of these keys, and which hash; `None` if a chain is broken.
fn indexed(
    file: &IndexFile,
    geometry: IndexGeometry,
    by_name: &HashMap<&str, HashMap<&str, Vec<usize>>>,
) -> Result<Option<BTreeSet<(i64, i32)>>> {
    let mut offsets = BTreeSet::new();
    for (topic, keys) in by_name {
        for key in keys.keys() {
            interrupt::check()?;
            let hash = index_key_hash(topic, key);
            let (found, whole) = file.offsets(geometry, hash, &(i64::MIN..=i64::MAX))?;
            if !whole {
                return Ok(None);
            }
            offsets.extend(found.into_iter().map(|offset| (offset, hash)));
        }
    }
    Ok(Some(offsets))
}
