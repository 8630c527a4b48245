//! The state of an index file: its fill level, the lengths of its chains, and its use by queries.

use std::path::PathBuf;
use std::sync::Arc;

use crate::error::Result;
use crate::format::{GeometryGuess, IndexGeometry, IndexHeader};
use crate::interrupt;
use crate::log::index::chain::{item, windows};
use crate::log::index::index_file::IndexFile;
use crate::log::index::index_service::{IndexService, IsOfLog};

/// The state of an index file.
#[derive(Debug, Clone)]
pub struct IndexFileState {
    /// Its path.
    pub path: PathBuf,
    /// Its header.
    pub header: IndexHeader,
    /// Its slots and items; `None` if its bytes do not determine them.
    pub geometry: Option<IndexGeometry>,
    /// The lengths of its chains; `None` if it is not whole.
    pub chains: Option<Chains>,
    /// Set if every item can be reached from its slot; `None` without a geometry.
    pub is_whole: Option<bool>,
    /// Set if queries use it. Otherwise they walk the log for the messages that it indexes.
    pub is_used: bool,
}

/// The distribution of the items of an index file over its slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Chains {
    /// The number of slots with items.
    pub used_slots: u32,
    /// The number of items in the longest chain.
    pub longest: u32,
}

impl IndexService {
    /// Returns the state of each file, oldest first, without those that another process has removed. Reads whole files.
    ///
    /// # Errors
    /// Those of [`IndexService::sources`].
    pub fn states(&self, is_of_log: IsOfLog<'_>) -> Result<Vec<IndexFileState>> {
        let mut states = Vec::new();
        for file in self.files().iter() {
            match self.state_of(file, is_of_log) {
                Err(error) if error.is_missing_file() => {}
                state => states.push(state?),
            }
        }
        Ok(states)
    }

    /// Returns the files, oldest first, each with the geometry that they share or that its own bytes determine; `None` if it is
    /// undetermined. The items are not checked.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn with_geometries(&self) -> Result<Vec<(Arc<IndexFile>, Option<IndexGeometry>)>> {
        let shared = self.geometry()?;
        let of = |file: &Arc<IndexFile>| {
            let geometry = match shared.filter(|shared| shared.file_len() == file.file_len()) {
                Some(shared) => Some(shared),
                None => match file.guess_geometry()? {
                    GeometryGuess::One(geometry) => Some(geometry),
                    _ => None,
                },
            };
            Ok((file.clone(), geometry))
        };
        self.files().iter().map(of).collect()
    }

    fn state_of(&self, file: &IndexFile, is_of_log: IsOfLog<'_>) -> Result<IndexFileState> {
        let is_used = self.usable(file, is_of_log)?.is_some();
        // The header may just have been read again.
        let (header, geometry) = (file.header(), self.geometry_of(file)?);
        let (is_whole, chains) = match geometry {
            None => (None, None),
            Some(_) if header.items() <= 0 => (Some(true), Some(Chains::default())),
            Some(geometry) if file.is_whole(geometry)? => (Some(true), Some(file.chains(geometry, header)?)),
            Some(_) => (Some(false), None),
        };
        Ok(IndexFileState {
            path: file.path().to_owned(),
            header,
            geometry,
            chains,
            is_whole,
            is_used,
        })
    }
}

impl IndexFile {
    /// Counts the items of each slot of a whole file.
    fn chains(&self, geometry: IndexGeometry, header: IndexHeader) -> Result<Chains> {
        let mut chains = Chains::default();
        let Some(mapped) = self.mapped()? else { return Ok(chains) };
        for window in windows(geometry, header.index_count) {
            let mut items = vec![0_u32; window.len()];
            for number in 1..header.index_count {
                interrupt::check()?;
                let Some(item) = item(&mapped, geometry, number) else { break };
                let slot = geometry.slot_of(item.key_hash).checked_sub(window.start);
                if let Some(items) = slot.and_then(|slot| items.get_mut(slot as usize)) {
                    *items += 1;
                }
            }
            chains.used_slots += items.iter().filter(|items| **items > 0).count() as u32;
            chains.longest = chains.longest.max(items.into_iter().max().unwrap_or(0));
        }
        Ok(chains)
    }
}
