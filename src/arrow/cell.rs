//! The value of a column in one row.

use arrow_array::{Array, ArrayAccessor, ArrayRef};

use crate::error::Result;

type AtRow<'a, T> = dyn Fn(usize) -> Result<Option<T>> + 'a;

/// The values of a column by row. A column that is null in every row costs no call.
pub(crate) struct At<'a, T>(Option<Box<AtRow<'a, T>>>);

impl<'a, T> At<'a, T> {
    pub(super) fn new(at: impl Fn(usize) -> Result<Option<T>> + 'a) -> Self {
        Self(Some(Box::new(at)))
    }

    /// Creates a column that is null in every row.
    pub(super) fn nothing() -> Self {
        Self(None)
    }

    /// Returns the value; `None` for a null.
    #[inline]
    pub(crate) fn at(&self, row: usize) -> Result<Option<T>> {
        match &self.0 {
            Some(at) => at(row),
            None => Ok(None),
        }
    }

    /// Returns true if it is null in every row because there is no such column.
    pub(crate) fn is_nothing(&self) -> bool {
        self.0.is_none()
    }
}

/// Maps a function over the rows that are not null.
pub(super) fn valid<'a, T>(column: &'a ArrayRef, value: impl Fn(usize) -> T + 'a) -> At<'a, T> {
    match column.nulls() {
        None => At::new(move |row| Ok(Some(value(row)))),
        Some(nulls) => At::new(move |row| Ok(nulls.is_valid(row).then(|| value(row)))),
    }
}

/// Returns the values of an array.
pub(super) fn values<'a, A: ArrayAccessor + 'a>(column: A) -> At<'a, A::Item> {
    if column.nulls().is_none() {
        return At::new(move |row| Ok(Some(column.value(row))));
    }
    At::new(move |row| Ok(column.is_valid(row).then(|| column.value(row))))
}
