//! Lookups of index items by the physical offset that they name.

use crate::error::Result;
use crate::format::IndexItem;
use crate::log::index::index_service::IndexService;

/// Items that are read at once.
const AT_ONCE: i32 = 64;

impl IndexService {
    /// Hands over the items that name a place at or after `physical`, file by file, until `take` returns false. Files whose geometry is
    /// unknown are left out.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`], [`crate::error::Error::Invalid`] for a geometry option that the files contradict; those of `take`.
    pub(crate) fn visit_from(&self, physical: i64, mut take: impl FnMut(&IndexItem) -> Result<bool>) -> Result<()> {
        let mut items = Vec::new();
        for (file, geometry) in self.with_geometries()? {
            let Some(geometry) = geometry else { continue };
            let count = file.header().index_count;
            let mut number = file.first_at(geometry, count, physical)?;
            'of_file: while number < count {
                file.items(geometry, number..count.min(number.saturating_add(AT_ONCE)), &mut items)?;
                if items.is_empty() {
                    break;
                }
                for item in items.iter().filter(|item| item.physical_offset >= physical) {
                    if !take(item)? {
                        break 'of_file;
                    }
                }
                number = number.saturating_add(AT_ONCE);
            }
        }
        Ok(())
    }
}
