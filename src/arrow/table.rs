//! A table from a caller, and the values of its columns, in any Arrow encoding.

use std::fmt::Display;
use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::{DataType, Fields, TimeUnit};

use crate::arrow::cell::{At, valid, values};
use crate::error::{Error, Result};
use crate::format::{Round, mistaken_unit};
use crate::interrupt;

/// A table in one or more chunks.
pub(crate) struct Table {
    pub(crate) fields: Fields,
    pub(crate) chunks: Vec<StructArray>,
}

/// The bound below which every whole number has an exact float64.
const EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;

impl Table {
    pub(crate) fn rows(&self) -> usize {
        self.chunks.iter().map(Array::len).sum()
    }

    /// Returns the columns' names, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.name().as_str())
    }

    pub(crate) fn chunks(&self) -> impl Iterator<Item = Chunk<'_>> {
        self.chunks.iter().map(|rows| Chunk {
            fields: &self.fields,
            rows,
        })
    }

    /// Returns a column of whole numbers of any width.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is missing, of another type, or a number exceeds 64 bits.
    pub(crate) fn integers(&self, name: &str) -> Result<Vec<Option<i64>>> {
        self.whole(name, Chunk::integer)
    }

    /// Returns a column of text.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is missing or of another type.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<Option<&str>>> {
        self.whole(name, Chunk::text)
    }

    /// Checks that each of these columns exists once.
    ///
    /// # Errors
    /// [`Error::Invalid`] if one of these columns is missing or repeated.
    pub(crate) fn expect_columns(&self, names: &[&str]) -> Result<()> {
        for name in names {
            if self.names().filter(|known| known == name).count() != 1 {
                let names: Vec<_> = self.names().collect();
                return invalid(format!(
                    "expected one column called {name:?}, but the columns are {}",
                    names.join(", ")
                ));
            }
        }
        Ok(())
    }

    fn whole<'a, T>(&'a self, name: &str, of: fn(&Chunk<'a>, &str) -> Result<At<'a, T>>) -> Result<Vec<Option<T>>> {
        self.expect_columns(&[name])?;
        let mut values = try_with_capacity(self.rows())?;
        for chunk in self.chunks() {
            let value = of(&chunk, name)?;
            for row in 0..chunk.len() {
                interrupt::check()?;
                values.push(if chunk.is_null(row) { None } else { value.at(row)? });
            }
        }
        Ok(values)
    }
}

/// A chunk of a table. An absent column is null in every row.
#[derive(Clone, Copy)]
pub(crate) struct Chunk<'a> {
    fields: &'a Fields,
    rows: &'a StructArray,
}

impl<'a> Chunk<'a> {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if the whole row is null.
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.rows.is_null(row)
    }

    /// Returns a column of whole numbers of any width. A float64 is accepted, too: pandas converts whole numbers to floats if there
    /// is a null among them.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another type; from a row, for a number that exceeds 64 bits, and for an inexact float.
    pub(crate) fn integer(&self, name: &str) -> Result<At<'a, i64>> {
        let Some(column) = self.column(name) else {
            return Ok(At::nothing());
        };
        Ok(match column.data_type() {
            DataType::Int8 => integer::<Int8Type>(column, name),
            DataType::Int16 => integer::<Int16Type>(column, name),
            DataType::Int32 => integer::<Int32Type>(column, name),
            DataType::Int64 => integer::<Int64Type>(column, name),
            DataType::UInt8 => integer::<UInt8Type>(column, name),
            DataType::UInt16 => integer::<UInt16Type>(column, name),
            DataType::UInt32 => integer::<UInt32Type>(column, name),
            DataType::UInt64 => integer::<UInt64Type>(column, name),
            DataType::Float64 => whole_float(column, name),
            other => return invalid(format!("column {name:?} is {other}: cast it to int64 first")),
        })
    }

    /// Returns a column of times in whole ms since 1970: timestamps with a timezone, or numbers of ms.
    ///
    /// # Errors
    /// Those of [`Chunk::integer`]; from a row, for a number in another unit than ms.
    pub(crate) fn time(&self, name: &str, round: Round) -> Result<At<'a, i64>> {
        let Some(column) = self.column(name) else {
            return Ok(At::nothing());
        };
        let (unit, per_ms) = match column.data_type() {
            DataType::Timestamp(_, None) => {
                return invalid(format!(
                    "column {name:?} is a timestamp without a timezone: cast it to one with timezone UTC first"
                ));
            }
            DataType::Timestamp(TimeUnit::Second, _) => {
                let seconds = integer::<TimestampSecondType>(column, name);
                return Ok(At::new(move |row| Ok(seconds.at(row)?.map(|time| time.saturating_mul(1000)))));
            }
            DataType::Timestamp(TimeUnit::Millisecond, _) => (integer::<TimestampMillisecondType>(column, name), 1),
            DataType::Timestamp(TimeUnit::Microsecond, _) => (integer::<TimestampMicrosecondType>(column, name), 1000),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => (integer::<TimestampNanosecondType>(column, name), 1_000_000),
            // Converted to int64 it would count days: a valid number of ms, soon after 1970.
            DataType::Date32 => {
                return invalid(format!(
                    "column {name:?} is Date32: cast it to a timestamp with timezone UTC first"
                ));
            }
            _ => {
                let (number, name) = (self.integer(name)?, name.to_owned());
                let in_ms = move |time| match mistaken_unit(time) {
                    None => Ok(time),
                    Some(unit) => invalid(format!(
                        "column {name:?} holds {time}: it looks like {unit}, or cast it to a timestamp"
                    )),
                };
                return Ok(At::new(move |row| number.at(row)?.map(&in_ms).transpose()));
            }
        };
        Ok(At::new(move |row| Ok(unit.at(row)?.map(|time| round.to_ms(time, per_ms)))))
    }

    /// Returns a column of text: utf8, `large_utf8`, `utf8_view`, or a dictionary of one of them.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another type.
    pub(crate) fn text(&self, name: &str) -> Result<At<'a, &'a str>> {
        self.column(name)
            .map_or_else(|| Ok(At::nothing()), |column| text(column, name))
    }

    /// Returns a column of bytes: binary or `fixed_size_binary` of any kind, a dictionary of one of them, or text.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another type.
    pub(crate) fn bytes(&self, name: &str) -> Result<At<'a, &'a [u8]>> {
        self.column(name)
            .map_or_else(|| Ok(At::nothing()), |column| bytes(column, name))
    }

    /// Returns a column of several texts: a list of text, or a single text.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another type; from a row, for a null in its list.
    pub(crate) fn texts(&self, name: &str) -> Result<At<'a, Vec<&'a str>>> {
        let Some(column) = self.column(name) else {
            return Ok(At::nothing());
        };
        let Some((items, range)) = list(column) else {
            let text = text(column, name)?;
            return Ok(At::new(move |row| Ok(text.at(row)?.map(|text| vec![text]))));
        };
        let (item, name) = (text(items, name)?, name.to_owned());
        Ok(At::new(move |row| {
            let Some(range) = range.at(row)? else { return Ok(None) };
            let null = || Error::Invalid {
                what: format!("column {name:?} holds a null in a list"),
            };
            let items: Result<Vec<_>> = range.map(|at| item.at(at)?.ok_or_else(null)).collect();
            items.map(Some)
        }))
    }

    /// Returns a column of name-value pairs of text: a map, a list of structs of two, or a struct, whose fields are the names. A
    /// null value omits the pair.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another type.
    pub(crate) fn pairs(&self, name: &str) -> Result<At<'a, Vec<(&'a str, &'a str)>>> {
        let Some(column) = self.column(name) else {
            return Ok(At::nothing());
        };
        if let DataType::Struct(fields) = column.data_type() {
            let fields = fields.iter().zip(column.as_struct().columns());
            let fields: Vec<_> = fields
                .map(|(field, values)| Ok((field.name().as_str(), text(values, name)?)))
                .collect::<Result<_>>()?;
            return Ok(At::new(move |row| {
                let pairs = fields
                    .iter()
                    .map(|(name, value)| Ok(value.at(row)?.map(|value| (*name, value))));
                let pairs: Vec<_> = pairs.filter_map(Result::transpose).collect::<Result<_>>()?;
                Ok(column.is_valid(row).then_some(pairs))
            }));
        }
        let Some((pair, range)) = pair_by_pair(column, name)? else {
            return invalid(format!(
                "column {name:?} is {}: expected a map, a list of (name, value) or a struct of text",
                column.data_type()
            ));
        };
        Ok(At::new(move |row| {
            let Some(range) = range.at(row)? else { return Ok(None) };
            let pairs = range.map(|at| pair.at(at));
            pairs.filter_map(Result::transpose).collect::<Result<_>>().map(Some)
        }))
    }

    /// Returns a column, unless all of its values are null: then its type means nothing, because pandas gives such a column a
    /// numeric type.
    pub(super) fn column(&self, name: &str) -> Option<&'a ArrayRef> {
        let at = self.fields.iter().position(|field| field.name() == name)?;
        let column = self.rows.columns().get(at)?;
        let is_null = *column.data_type() == DataType::Null || !column.is_empty() && column.null_count() == column.len();
        (!is_null).then_some(column)
    }
}

/// Returns an empty vector with capacity for `rows`. A column of nulls can state any number of rows without taking memory itself.
///
/// # Errors
/// [`Error::Invalid`] if there is not enough memory.
pub(crate) fn try_with_capacity<T>(rows: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    match values.try_reserve_exact(rows) {
        Ok(()) => Ok(values),
        Err(_) => invalid(format!("there is no memory for the table's {rows} rows: give it in parts")),
    }
}

fn integer<'a, T: ArrowPrimitiveType>(column: &'a ArrayRef, name: &str) -> At<'a, i64>
where
    T::Native: TryInto<i64> + Display + Copy,
{
    let (values, name) = (column.as_primitive::<T>(), name.to_owned());
    At::new(move |row| {
        if values.is_null(row) {
            return Ok(None);
        }
        let value = values.value(row);
        let Ok(value) = value.try_into() else {
            return invalid(format!("column {name:?} holds {value}, which does not fit int64"));
        };
        Ok(Some(value))
    })
}

/// Returns the whole numbers in a column of floats; NaN is a null. From 2^53 on a float may have been rounded.
fn whole_float<'a>(column: &'a ArrayRef, name: &str) -> At<'a, i64> {
    let (values, name) = (column.as_primitive::<Float64Type>(), name.to_owned());
    At::new(move |row| {
        let value = values.value(row);
        if values.is_null(row) || value.is_nan() {
            return Ok(None);
        }
        if value.fract() != 0.0 || value.abs() >= EXACT_FLOAT {
            return invalid(format!(
                "column {name:?} holds {value:?} as a float64, which is not exactly a whole number: cast it to int64 at its source"
            ));
        }
        Ok(Some(value as i64))
    })
}

fn bytes<'a>(column: &'a ArrayRef, name: &str) -> Result<At<'a, &'a [u8]>> {
    Ok(match column.data_type() {
        DataType::Binary => values(column.as_binary::<i32>()),
        DataType::LargeBinary => values(column.as_binary::<i64>()),
        DataType::BinaryView => values(column.as_binary_view()),
        DataType::FixedSizeBinary(_) => values(column.as_fixed_size_binary()),
        DataType::Dictionary(_, _) => looked_up(column, bytes(column.as_any_dictionary().values(), name)?),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let text = text(column, name)?;
            At::new(move |row| Ok(text.at(row)?.map(str::as_bytes)))
        }
        other => return invalid(format!("column {name:?} is {other}: cast it to binary first")),
    })
}

/// Returns the values of a dictionary column, by row.
fn looked_up<'a, T: 'a>(column: &'a ArrayRef, word: At<'a, T>) -> At<'a, T> {
    let dictionary = column.as_any_dictionary();
    // If all values are null, the dictionary may be empty, and then no key can be looked up.
    let keys = if dictionary.values().is_empty() {
        Vec::new()
    } else {
        dictionary.normalized_keys()
    };
    At::new(move |row| match keys.get(row) {
        Some(key) if column.is_valid(row) => word.at(*key),
        _ => Ok(None),
    })
}

fn text<'a>(column: &'a ArrayRef, name: &str) -> Result<At<'a, &'a str>> {
    Ok(match column.data_type() {
        DataType::Utf8 => values(column.as_string::<i32>()),
        DataType::LargeUtf8 => values(column.as_string::<i64>()),
        DataType::Utf8View => values(column.as_string_view()),
        DataType::Null => At::nothing(),
        DataType::Dictionary(_, _) => looked_up(column, text(column.as_any_dictionary().values(), name)?),
        other => return invalid(format!("column {name:?} is {other}: cast it to utf8 first")),
    })
}

/// Returns the items of a list column, and the range of them in each row.
fn list(column: &ArrayRef) -> Option<(&ArrayRef, At<'_, Range<usize>>)> {
    match column.data_type() {
        DataType::List(_) => {
            let lists = column.as_list::<i32>();
            Some((lists.values(), ranges(column, lists.value_offsets())))
        }
        DataType::LargeList(_) => {
            let lists = column.as_list::<i64>();
            Some((lists.values(), ranges(column, lists.value_offsets())))
        }
        DataType::ListView(_) => {
            let lists = column.as_list_view::<i32>();
            Some((
                lists.values(),
                sized_ranges(column, lists.value_offsets(), lists.value_sizes()),
            ))
        }
        DataType::LargeListView(_) => {
            let lists = column.as_list_view::<i64>();
            Some((
                lists.values(),
                sized_ranges(column, lists.value_offsets(), lists.value_sizes()),
            ))
        }
        DataType::FixedSizeList(_, _) => {
            let lists = column.as_fixed_size_list();
            let size = usize::try_from(lists.value_length()).unwrap_or_default();
            Some((lists.values(), valid(column, move |row| row * size..(row + 1) * size)))
        }
        _ => None,
    }
}

/// The pairs of a column of maps or lists, one for each item, and the range of items in each row; `None` for a column of another
/// type.
type PairByPair<'a> = (At<'a, (&'a str, &'a str)>, At<'a, Range<usize>>);

fn pair_by_pair<'a>(column: &'a ArrayRef, name: &str) -> Result<Option<PairByPair<'a>>> {
    let (names, values, range) = if matches!(column.data_type(), DataType::Map(_, _)) {
        let maps = column.as_map();
        (maps.keys(), maps.values(), ranges(column, maps.value_offsets()))
    } else {
        let Some((items, range)) = list(column) else { return Ok(None) };
        match items.as_struct_opt().map(StructArray::columns) {
            Some([names, values]) => (names, values, range),
            Some(_) => return Ok(None),
            None => return Ok(pair_of_list(items, name)?.map(|pair| (pair, range))),
        }
    };
    let (names, values) = (text(names, name)?, text(values, name)?);
    Ok(Some((At::new(move |at| Ok(names.at(at)?.zip(values.at(at)?))), range)))
}

/// Returns the pairs of lists of a name and a value, as pandas writes a map. If all lists are empty, they have no type.
fn pair_of_list<'a>(items: &'a ArrayRef, name: &str) -> Result<Option<At<'a, (&'a str, &'a str)>>> {
    if *items.data_type() == DataType::Null {
        return Ok(Some(At::nothing()));
    }
    let Some((words, range)) = list(items) else { return Ok(None) };
    let (word, name) = (text(words, name)?, name.to_owned());
    Ok(Some(At::new(move |at| {
        let Some(range) = range.at(at)? else { return Ok(None) };
        if range.len() != 2 {
            return invalid(format!(
                "column {name:?} holds a list of {}: expected a name and a value",
                range.len()
            ));
        }
        Ok(word.at(range.start)?.zip(word.at(range.start + 1)?))
    })))
}

fn sized_ranges<'a, T: Copy + TryInto<usize>>(column: &'a ArrayRef, offsets: &'a [T], sizes: &'a [T]) -> At<'a, Range<usize>> {
    let number = |numbers: &[T], at: usize| {
        numbers
            .get(at)
            .and_then(|number| (*number).try_into().ok())
            .unwrap_or_default()
    };
    valid(column, move |row| {
        let start = number(offsets, row);
        start..start + number(sizes, row)
    })
}

fn ranges<'a, T: Copy + TryInto<usize>>(column: &'a ArrayRef, offsets: &'a [T]) -> At<'a, Range<usize>> {
    let offset = move |at: usize| {
        offsets
            .get(at)
            .and_then(|offset| (*offset).try_into().ok())
            .unwrap_or_default()
    };
    valid(column, move |row| offset(row)..offset(row + 1))
}

fn invalid<T>(what: String) -> Result<T> {
    Err(Error::Invalid { what })
}
