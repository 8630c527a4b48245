//! The chain of a key, item by item, for people.

use crate::error::Result;
use crate::format::{IndexGeometry, IndexItem};
use crate::log::index::follow::{Chain, Link, slot_value};
use crate::log::index::index_file::IndexFile;

/// An item of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChainItem {
    /// Its number in the file.
    pub(crate) number: i32,
    /// The item; `None` if the file has none of that number.
    pub(crate) item: Option<IndexItem>,
    /// Whether the chain is broken here.
    pub(crate) is_broken: bool,
    /// Whether it is of the key that was asked for.
    pub(crate) is_of_key: bool,
}

/// The chain of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotChain {
    /// The slot.
    pub(crate) slot: u32,
    /// The number of its newest item; 0 for none.
    pub(crate) newest: i32,
    /// The items, the newest first.
    pub(crate) items: Vec<ChainItem>,
    /// Whether the chain goes on after them.
    pub(crate) goes_on: bool,
}

impl IndexFile {
    /// The chain in which the items of a key stand; `None` if the file is gone, or its slot cannot be read.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(crate) fn chain(&self, geometry: IndexGeometry, key_hash: i32, most: usize) -> Result<Option<SlotChain>> {
        let Some(mapped) = self.mapped()? else { return Ok(None) };
        let slot = geometry.slot_of(key_hash);
        let (Some(newest), Some(mut chain)) = (slot_value(&mapped, geometry, slot), Chain::new(&mapped, geometry, key_hash))
        else {
            return Ok(None);
        };
        let header = self.header();
        let mut items = Vec::new();
        let mut is_broken = false;
        while !chain.is_at_end() && !is_broken && items.len() < most {
            let number = chain.number();
            let item = chain.next_item(&mapped, geometry);
            let link = chain.follow(item, geometry, &header);
            is_broken = matches!(link, Link::Broken);
            let is_of_key = matches!(link, Link::OfKey(..));
            items.push(ChainItem {
                number,
                item,
                is_broken,
                is_of_key,
            });
        }
        let goes_on = !chain.is_at_end() && !is_broken;
        Ok(Some(SlotChain {
            slot,
            newest,
            items,
            goes_on,
        }))
    }
}
