//! The record that a `Message` shows: in the store, or a copy of its own.

use super::buffer::PinnedBytes;
use crate::error::Result;
use crate::format::{MessageView, RecordLayout};
use crate::read::StoredMessage;

/// Where the record's bytes are.
#[derive(Clone)]
pub(super) enum Held {
    /// In the store.
    Stored(StoredMessage),
    /// In a copy that was pickled.
    Copied { record: Box<[u8]>, layout: RecordLayout },
}

impl Held {
    pub(super) fn view(&self) -> MessageView<'_> {
        match self {
            Self::Stored(message) => message.view(),
            Self::Copied { record, layout } => MessageView::from_layout(record, *layout),
        }
    }

    pub(super) fn intact(&self) -> Result<()> {
        match self {
            Self::Stored(message) => message.intact(),
            Self::Copied { .. } => Ok(()),
        }
    }

    /// The result of `take`, if the device delivered every byte that it read.
    pub(super) fn read<T>(&self, take: impl FnOnce(MessageView<'_>) -> T) -> Result<T> {
        let taken = take(self.view());
        self.intact()?;
        Ok(taken)
    }
}

impl PinnedBytes for Held {
    fn bytes(&self) -> &[u8] {
        self.view().body()
    }
}
