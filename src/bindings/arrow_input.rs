//! Tables that come in through the structs of Arrow's C data interface, checked before they are used: a producer may hand over bytes
//! that it never checked itself (text that is not UTF-8, a dictionary's index past its words), and Arrow's arrays trust them.
//!
//! Checked are numbers and pointers for what they cannot be, then every value of every column that is not null. Left to the
//! producer, because no consumer can see it: that a pointer leads to memory of the size that the lengths ask for, that nobody
//! changes that memory concurrently, and that its functions can be called.
#![expect(unsafe_code, reason = "Arrow crosses the border as C structs full of pointers")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use arrow_array::StructArray;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer};
use arrow_data::{ArrayData, ArrayDataBuilder, layout};
use arrow_schema::{ArrowError, DataType, Field, Fields};
use pyo3::PyResult;
use pyo3::exceptions::{PyTypeError, PyValueError};

use crate::arrow::Table;
use crate::error::{Error, Result};

/// Types inside types. Arrow walks them by recursion.
const DEEPEST: usize = 64;
/// Rows, and bytes of a column: what an address space holds.
const MOST: i64 = 1 << 47;

/// `struct ArrowSchema`.
#[repr(C)]
struct CSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *const *const CSchema,
    dictionary: *const CSchema,
    release: *const c_void,
    private_data: *const c_void,
}

/// `struct ArrowArray`.
#[repr(C)]
struct CArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *const *const c_void,
    children: *const *const CArray,
    dictionary: *const CArray,
    release: *const c_void,
    private_data: *const c_void,
}

const _: () = assert!(size_of::<CSchema>() == size_of::<FFI_ArrowSchema>() && size_of::<CArray>() == size_of::<FFI_ArrowArray>());

/// Reads the table of a stream. Call it without the interpreter: a producer written in Python takes it itself.
///
/// # Errors
/// `TypeError` for what is not a table; `ValueError`: what the producer said, or what is wrong with which column and row.
pub(super) fn table_of_stream(stream: FFI_ArrowArrayStream) -> PyResult<Table> {
    without_panic(|| {
        let mut stream = Stream::new(stream)?;
        let fields = fields_of(&stream.schema()?)?;
        let (mut chunks, mut rows) = (Vec::new(), 0);
        while let Some(array) = stream.next()? {
            let chunk = checked(array, &fields, rows)?;
            rows += arrow_array::Array::len(&chunk);
            chunks.push(chunk);
        }
        Ok(Table { fields, chunks })
    })
}

/// Reads the table of one struct array.
///
/// # Errors
/// As [`table_of_stream`].
pub(super) fn table_of_array(schema: &FFI_ArrowSchema, array: FFI_ArrowArray) -> PyResult<Table> {
    without_panic(|| {
        let fields = fields_of(schema)?;
        let chunks = vec![checked(array, &fields, 0)?];
        Ok(Table { fields, chunks })
    })
}

/// Turns a panic into an error: Arrow panics at some of what no producer should send.
fn without_panic<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    let panicked = "the Arrow data is malformed: its parts contradict each other";
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(PyValueError::new_err(panicked)))
}

/// A stream that was not released.
struct Stream(FFI_ArrowArrayStream);

impl Stream {
    fn new(stream: FFI_ArrowArrayStream) -> Result<Self> {
        if stream.release().is_none() {
            return invalid("the Arrow stream was read or released before: ask for a new one");
        }
        Ok(Self(stream))
    }

    fn schema(&mut self) -> Result<FFI_ArrowSchema> {
        let mut schema = FFI_ArrowSchema::empty();
        let Some(get_schema) = self.0.get_schema() else {
            return invalid("the Arrow stream has no get_schema function");
        };
        // SAFETY: the function is the stream's own, and the stream is not released.
        let code = unsafe { get_schema(&raw mut self.0, &raw mut schema) };
        self.succeeded(code)?;
        Ok(schema)
    }

    fn next(&mut self) -> Result<Option<FFI_ArrowArray>> {
        let mut array = FFI_ArrowArray::empty();
        let Some(get_next) = self.0.get_next() else {
            return invalid("the Arrow stream has no get_next function");
        };
        // SAFETY: as in `schema`.
        let code = unsafe { get_next(&raw mut self.0, &raw mut array) };
        self.succeeded(code)?;
        Ok((!array.is_released()).then_some(array))
    }

    /// Turns a code that is not 0 into what the producer says about it.
    fn succeeded(&mut self, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let why = self.0.get_last_error().and_then(|get_last_error| {
            // SAFETY: the last call on the stream failed, so the function may be called; its text lives until the next call.
            unsafe {
                let text = NonNull::new(get_last_error(&raw mut self.0).cast_mut())?;
                Some(CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
            }
        });
        let why = why.unwrap_or_else(|| std::io::Error::from_raw_os_error(code).to_string());
        invalid(format!("the producer of the Arrow stream failed: {why}"))
    }
}

/// Returns the columns that a schema names.
fn fields_of(schema: &FFI_ArrowSchema) -> PyResult<Fields> {
    // SAFETY: both are the C struct of this name, and the reference is as long-lived.
    expect_schema(unsafe { &*ptr::from_ref(schema).cast::<CSchema>() }, 0)?;
    match Field::try_from(schema).map_err(refused)?.data_type() {
        DataType::Struct(fields) => Ok(fields.clone()),
        other => Err(PyTypeError::new_err(format!(
            "expected a table with named columns, got one column of {other}"
        ))),
    }
}

fn expect_schema(schema: &CSchema, depth: usize) -> Result<()> {
    if depth == DEEPEST {
        return invalid(format!("the Arrow schema has more than {DEEPEST} types inside one another"));
    }
    if schema.release.is_null() {
        return invalid("the Arrow schema was released before: ask for a new one");
    }
    let is_text = |text: *const c_char| {
        // SAFETY: a text of the producer's that is not null ends with a NUL.
        text.is_null() || unsafe { CStr::from_ptr(text) }.to_str().is_ok()
    };
    if schema.format.is_null() || !is_text(schema.format) || !is_text(schema.name) {
        return invalid("the Arrow schema holds a type or a name that is not text");
    }
    let mut inner = pointers(schema.children, schema.n_children, "schema")?;
    if !schema.dictionary.is_null() {
        inner.push(schema.dictionary);
    }
    for child in inner {
        // SAFETY: a pointer of the producer's that is not null leads to a schema that lives as long as its parent.
        let Some(child) = (unsafe { child.as_ref() }) else {
            return invalid("the Arrow schema is without one of its children");
        };
        expect_schema(child, depth + 1)?;
    }
    Ok(())
}

/// Reads the pointers of a C array of them.
fn pointers<T>(start: *const *const T, count: i64, of: &str) -> Result<Vec<*const T>> {
    match usize::try_from(count) {
        Ok(0) => Ok(Vec::new()),
        // SAFETY: an array of the producer's that is not null holds as many pointers as it says.
        Ok(count) if !start.is_null() => Ok((0..count).map(|at| unsafe { start.add(at).read_unaligned() }).collect()),
        _ => invalid(format!("the Arrow {of} declares {count} pointers, but their array is null")),
    }
}

/// Checks each value of an array, and returns its rows. `before` rows came in other arrays.
fn checked(mut array: FFI_ArrowArray, fields: &Fields, before: usize) -> Result<StructArray> {
    if array.is_released() {
        return invalid("the Arrow array was read or released before: ask for a new one");
    }
    let rows = DataType::Struct(fields.clone());
    // SAFETY: both are the C struct of this name, and the reference lives until the end of the call.
    expect_array(unsafe { &*ptr::from_ref(&array).cast::<CArray>() }, &rows)?;
    // SAFETY: it was checked just now, and the reference to it has ended.
    unsafe { drop_bitmaps_of_nulls(ptr::from_mut(&mut array).cast::<CArray>(), &rows) };
    // SAFETY: its numbers and pointers were checked for what can be seen of them; the rest is the producer's, by the interface.
    let data = unsafe { from_ffi_and_data_type(array, rows) }.map_err(refused)?;
    let mut columns = Vec::with_capacity(fields.len());
    for (field, column) in fields.iter().zip(data.child_data()) {
        if column.len() < data.offset() + data.len() {
            return invalid(format!("column {:?} has fewer rows than its table", field.name()));
        }
        let mut column = column.slice(data.offset(), data.len());
        if column.validate_full().is_err() {
            column = emptied(&column);
        }
        if let Err(error) = column.validate_full() {
            let row = bad_row(&column).map_or_else(String::new, |row| format!(", row {}", before + row));
            return invalid(format!("column {:?}{row}: {}", field.name(), text_of(error)));
        }
        columns.push(column);
    }
    let rows = ArrayData::builder(data.data_type().clone()).len(data.len());
    let rows = rows.nulls(data.nulls().cloned()).child_data(columns).build();
    Ok(StructArray::from(rows.map_err(refused)?))
}

/// Checks the numbers and pointers of an array, and of those inside it.
fn expect_array(array: &CArray, data_type: &DataType) -> Result<()> {
    let slots = array.length.checked_add(array.offset).filter(|slots| *slots <= MOST);
    let Some(slots) = slots.filter(|_| array.length >= 0 && array.offset >= 0 && array.null_count <= array.length) else {
        return invalid(format!(
            "an Arrow array of {data_type} says that it has {} rows from {} on, {} of them null",
            array.length, array.offset, array.null_count
        ));
    };
    if let DataType::FixedSizeBinary(width) = data_type
        && (*width < 0 || slots.checked_mul(i64::from(*width)).is_none_or(|bytes| bytes > MOST))
    {
        return invalid(format!("an Arrow array of {data_type} says that it has {slots} rows"));
    }
    expect_buffers(array, data_type, slots)?;
    let inner = inner_types(data_type);
    let children = pointers(array.children, array.n_children, "array")?;
    if children.len() != inner.len() {
        return invalid(format!("an Arrow array of {data_type} has {} children", children.len()));
    }
    let dictionary = match data_type {
        DataType::Dictionary(_, words) => Some((array.dictionary, words.as_ref())),
        _ => None,
    };
    for (child, data_type) in children.into_iter().zip(inner).chain(dictionary) {
        // SAFETY: a pointer of the producer's that is not null leads to an array that lives as long as its parent.
        let Some(child) = (unsafe { child.as_ref() }) else {
            return invalid(format!("an Arrow array is without its child of {data_type}"));
        };
        expect_array(child, data_type)?;
    }
    Ok(())
}

fn inner_types(data_type: &DataType) -> Vec<&DataType> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => vec![item.data_type()],
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        DataType::Union(fields, _) => fields.iter().map(|(_, field)| field.data_type()).collect(),
        DataType::RunEndEncoded(ends, values) => vec![ends.data_type(), values.data_type()],
        _ => Vec::new(),
    }
}

/// Takes the bitmap from arrays of nulls: Arrow before 1.0 gave them one, polars does still, and the importer refuses it. The array is
/// this consumer's, which the interface lets change it; its release callback frees the buffers through `private_data`.
///
/// # Safety
/// [`expect_array`] has found nothing wrong, and no reference into the array lives.
unsafe fn drop_bitmaps_of_nulls(array: *mut CArray, data_type: &DataType) {
    // SAFETY: the caller's.
    unsafe {
        if *data_type == DataType::Null {
            (*array).n_buffers = 0;
        }
        for (at, inner) in inner_types(data_type).into_iter().enumerate() {
            drop_bitmaps_of_nulls((*array).children.add(at).read_unaligned().cast_mut(), inner);
        }
    }
}

/// Checks how many buffers there are, and what Arrow reads of them to learn their sizes.
fn expect_buffers(array: &CArray, data_type: &DataType, slots: i64) -> Result<()> {
    let expected = layout(data_type);
    let fixed = expected.buffers.len() + usize::from(expected.can_contain_null_mask);
    let buffers = pointers(array.buffers, array.n_buffers, "array")?;
    let is_variadic = expected.variadic;
    let has_bitmap_of_nulls = *data_type == DataType::Null && buffers.len() == 1;
    if is_variadic && buffers.len() <= fixed || !is_variadic && buffers.len() != fixed && !has_bitmap_of_nulls {
        return invalid(format!(
            "an Arrow array of {data_type} has {} buffers, not {fixed}",
            buffers.len()
        ));
    }
    let first = buffers.first().copied().unwrap_or(ptr::null());
    if expected.can_contain_null_mask && array.null_count > 0 && first.is_null() {
        return invalid(format!("an Arrow array of {data_type} has nulls, and does not say where"));
    }
    let second = buffers.get(1).copied().unwrap_or(ptr::null());
    let values_end = match data_type {
        // An empty array may come without offsets.
        _ if slots == 0 => Some(0),
        DataType::Utf8 | DataType::Binary => number::<i32>(second, slots as usize).map(i64::from),
        DataType::LargeUtf8 | DataType::LargeBinary => number::<i64>(second, slots as usize),
        _ => Some(0),
    };
    if values_end.is_none_or(|end| !(0..=MOST).contains(&end)) {
        return invalid(format!(
            "an Arrow array of {data_type} has no offsets, or ends before it starts"
        ));
    }
    if is_variadic {
        let lengths = buffers.last().copied().unwrap_or(ptr::null());
        let length = |at: usize| number::<i64>(lengths, at);
        if !(0..buffers.len() - fixed - 1).all(|at| length(at).is_some_and(|length| (0..=MOST).contains(&length))) {
            return invalid(format!("an Arrow array of {data_type} does not say how long its buffers are"));
        }
    }
    Ok(())
}

/// Reads a number of a buffer; `None` if there is no buffer, or it is too short or misaligned for the number.
fn number<T: Copy>(buffer: *const c_void, at: usize) -> Option<T> {
    let numbers = buffer.cast::<T>();
    // SAFETY: a buffer of the producer's that is not null is as long as its array asks for.
    (!numbers.is_null() && numbers.is_aligned()).then(|| unsafe { *numbers.add(at) })
}

/// Returns the first row of a column that fails, if a row does and not the column as a whole.
fn bad_row(column: &ArrayData) -> Option<usize> {
    let fails = |rows: usize| column.slice(0, rows).validate_data().is_err();
    if fails(column.len()) {
        let (mut good, mut bad) = (0, column.len());
        while good + 1 < bad {
            let middle = good.midpoint(bad);
            if fails(middle) { bad = middle } else { good = middle }
        }
        return (!fails(0)).then_some(good);
    }
    let child = column.child_data().iter().find(|child| child.validate_full().is_err())?;
    let item = bad_row(child)?;
    match column.data_type() {
        DataType::List(_) | DataType::Map(_, _) => row_with(column.buffer::<i32>(0), &(item as i32)),
        DataType::LargeList(_) => row_with(column.buffer::<i64>(0), &(item as i64)),
        DataType::Struct(_) => item.checked_sub(column.offset()),
        _ => None,
    }
}

/// Returns the row whose range of items holds one.
fn row_with<T: PartialOrd>(offsets: &[T], item: &T) -> Option<usize> {
    offsets.partition_point(|start| start <= item).checked_sub(1)
}

fn text_of(error: ArrowError) -> String {
    match error {
        ArrowError::InvalidArgumentError(text) => text,
        other => other.to_string(),
    }
}

fn refused(error: ArrowError) -> Error {
    Error::Invalid {
        what: format!("the Arrow data is malformed: {}", text_of(error)),
    }
}

fn invalid<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::Invalid { what: what.into() })
}

/// Returns the same array with the empty text under the nulls of its text, at any depth: Arrow leaves these bytes to the producer, down to
/// bytes that are not UTF-8, and its arrays of text check them all the same. Other malformed data stays as it is.
pub(super) fn emptied(data: &ArrayData) -> ArrayData {
    let with_text = data.nulls().and_then(|nulls| match data.data_type() {
        DataType::Utf8 => texts::<i32>(data, nulls),
        DataType::LargeUtf8 => texts::<i64>(data, nulls),
        DataType::Utf8View => views(data, nulls),
        _ => None,
    });
    let builder = with_text.unwrap_or_else(|| {
        let children = data.child_data().iter().map(emptied).collect();
        data.clone().into_builder().child_data(children)
    });
    builder.build().unwrap_or_else(|_| data.clone())
}

fn texts<T: ArrowNativeType>(data: &ArrayData, nulls: &NullBuffer) -> Option<ArrayDataBuilder> {
    let bytes = data.buffers().get(1)?.as_slice();
    let (mut offsets, mut values) = (vec![T::usize_as(0)], Vec::new());
    let starts = data.buffer::<T>(0);
    for (is_valid, (start, end)) in nulls.iter().zip(starts.iter().zip(starts.iter().skip(1))) {
        if is_valid {
            values.extend_from_slice(bytes.get(start.as_usize()..end.as_usize())?);
        }
        offsets.push(T::usize_as(values.len()));
    }
    let builder = like(data, nulls).add_buffer(Buffer::from_vec(offsets));
    Some(builder.add_buffer(Buffer::from_vec(values)))
}

fn views(data: &ArrayData, nulls: &NullBuffer) -> Option<ArrayDataBuilder> {
    let views = data.buffer::<u128>(0).iter().zip(nulls.iter());
    let views: Vec<u128> = views.map(|(view, is_valid)| if is_valid { *view } else { 0 }).collect();
    let bytes = data.buffers().get(1..)?.to_vec();
    Some(like(data, nulls).add_buffer(Buffer::from_vec(views)).add_buffers(bytes))
}

fn like(data: &ArrayData, nulls: &NullBuffer) -> ArrayDataBuilder {
    let builder = ArrayData::builder(data.data_type().clone()).len(data.len());
    builder.nulls(Some(nulls.clone()))
}
