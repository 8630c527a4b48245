//! The names in one directory, twice: as every process sees them, and as a power cut leaves them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// The target of a name: a place in the machine's table of files and directories.
pub(super) type Inode = usize;

/// Names that change together: a rename inside one directory removes one name and adds the other.
#[derive(Debug, Clone)]
struct Change {
    /// Its place among all changes of the machine.
    number: u64,
    sets: Vec<(OsString, Option<Inode>)>,
}

/// The changes without a sync that are on the disk after a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// The changes before this one: a journal that commits in order.
    Before(u64),
    /// Each change alone: all that the contract allows.
    Any,
}

/// A directory.
#[derive(Debug, Clone, Default)]
pub(super) struct Directory {
    live: BTreeMap<OsString, Inode>,
    durable: BTreeMap<OsString, Inode>,
    /// Changes since the last sync, in order.
    changes: Vec<Change>,
}

impl Directory {
    pub(super) fn get(&self, name: &OsStr) -> Option<Inode> {
        self.live.get(name).copied()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&OsString, Inode)> {
        self.live.iter().map(|(name, inode)| (name, *inode))
    }

    /// Changes names in one step.
    pub(super) fn change(&mut self, number: u64, sets: Vec<(OsString, Option<Inode>)>) {
        for (name, inode) in &sets {
            match inode {
                Some(inode) => self.live.insert(name.clone(), *inode),
                None => self.live.remove(name),
            };
        }
        self.changes.push(Change { number, sets });
    }

    pub(super) fn sync(&mut self) {
        self.durable.clone_from(&self.live);
        self.changes.clear();
    }

    pub(super) fn is_durable(&self) -> bool {
        self.changes.is_empty()
    }

    /// The directory after a power cut. `happened` decides each change alone, and gets each name.
    pub(super) fn crashed(&self, kept: Kept, mut happened: impl FnMut(&str, Option<bool>) -> bool) -> Self {
        let mut names = self.durable.clone();
        for change in &self.changes {
            let shown: Vec<String> = change
                .sets
                .iter()
                .map(|(name, inode)| format!("{}{}", if inode.is_some() { "+" } else { "-" }, name.display()))
                .collect();
            let decided = match kept {
                Kept::Before(number) => Some(change.number < number),
                Kept::Any => None,
            };
            if !happened(&shown.join(" "), decided) {
                continue;
            }
            for (name, inode) in &change.sets {
                match inode {
                    Some(inode) => names.insert(name.clone(), *inode),
                    None => names.remove(name),
                };
            }
        }
        Self {
            live: names.clone(),
            durable: names,
            changes: Vec::new(),
        }
    }
}
