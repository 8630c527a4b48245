//! The bytes under the nulls of text that came in. Arrow leaves it to the producer, down to bytes that are no UTF-8; its arrays of text
//! check it all the same. Here it is replaced by the empty text.

use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer};
use arrow_data::{ArrayData, ArrayDataBuilder};
use arrow_schema::DataType;

/// The same array with nothing under the nulls of its text, at any depth. What is malformed otherwise stays as it is.
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
