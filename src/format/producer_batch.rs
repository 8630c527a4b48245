use std::borrow::Cow;

use super::bytes::{i16_at, i32_at, put, put_i16, put_i32, slice_at};
use super::malformed::Malformed;
use super::properties::{MAX_PROPERTIES_SIZE, end_properties};

// 0 unit size i32 | 4 magic i32 = 0 | 8 CRC i32 = 0 | 12 flag i32 | 16 body length i32 | body | properties length i16 | properties

const FLAG_AT: usize = 12;
const BODY_LENGTH_AT: usize = FLAG_AT + 4;
const BODY_AT: usize = BODY_LENGTH_AT + 4;
const MIN_UNIT_SIZE: usize = BODY_AT + 2;
const _: () = assert!(MIN_UNIT_SIZE == 22);

/// A message inside the body of a producer batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchUnit<'a> {
    /// The producer's own number.
    pub flag: i32,
    /// The body of this message.
    pub body: &'a [u8],
    /// Its property bytes.
    pub properties: &'a [u8],
}

/// An iterator over the messages in the body of a producer batch, or of a stored inner batch (docs/FORMAT.md, section Batch
/// bodies). It ends after the first malformed unit.
#[derive(Clone, Debug)]
pub struct ProducerBatch<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> ProducerBatch<'a> {
    /// Creates an iterator over a decompressed body.
    pub fn new(body: &'a [u8]) -> Self {
        Self { body, at: 0 }
    }
}

impl<'a> Iterator for ProducerBatch<'a> {
    type Item = Result<BatchUnit<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.body.get(self.at..).filter(|rest| !rest.is_empty())?;
        let at = self.at;
        match read_unit(rest) {
            Ok((unit, size)) => {
                self.at += size;
                Some(Ok(unit))
            }
            Err(reason) => {
                self.at = self.body.len();
                Some(Err(Malformed::new(at, reason)))
            }
        }
    }
}

fn read_unit(rest: &[u8]) -> Result<(BatchUnit<'_>, usize), String> {
    let size = i32_at(rest, 0);
    let unit = usize::try_from(size)
        .ok()
        .filter(|size| *size >= MIN_UNIT_SIZE)
        .and_then(|size| rest.get(..size));
    let Some(unit) = unit else {
        return Err(format!(
            "a batch unit of {size} bytes, where {} are left and {MIN_UNIT_SIZE} is the least",
            rest.len()
        ));
    };
    let body_len = i32_at(unit, BODY_LENGTH_AT);
    let variable = unit.len() - MIN_UNIT_SIZE;
    let Some(body_size) = usize::try_from(body_len).ok().filter(|len| *len <= variable) else {
        return Err(format!("a body of {body_len} bytes in a batch unit of {size}"));
    };
    let properties_len = i16_at(unit, BODY_AT + body_size);
    let Some(properties_size) = usize::try_from(properties_len).ok().filter(|len| body_size + len == variable) else {
        return Err(format!(
            "a body of {body_len} and properties of {properties_len} bytes do not make a batch unit of {size}"
        ));
    };
    let unit = BatchUnit {
        flag: i32_at(unit, FLAG_AT),
        body: slice_at(unit, BODY_AT, body_size),
        properties: slice_at(unit, MIN_UNIT_SIZE + body_size, properties_size),
    };
    Ok((unit, MIN_UNIT_SIZE + body_size + properties_size))
}

/// Encodes one unit. The body of a producer batch is the sequence of its units.
pub fn encode_unit(unit: &BatchUnit<'_>) -> Result<Vec<u8>, Malformed> {
    let size = MIN_UNIT_SIZE + unit.body.len() + unit.properties.len();
    if unit.properties.len() > MAX_PROPERTIES_SIZE || size > i32::MAX as usize {
        let reason = format!(
            "a batch unit of {size} bytes with {} of properties; at most {} and {MAX_PROPERTIES_SIZE} fit",
            unit.properties.len(),
            i32::MAX
        );
        return Err(Malformed::new(0, reason));
    }
    let mut out = vec![0; size];
    put_i32(&mut out, 0, size as i32);
    put_i32(&mut out, FLAG_AT, unit.flag);
    put_i32(&mut out, BODY_LENGTH_AT, unit.body.len() as i32);
    put(&mut out, BODY_AT, unit.body);
    put_i16(&mut out, BODY_AT + unit.body.len(), unit.properties.len() as i16);
    put(&mut out, MIN_UNIT_SIZE + unit.body.len(), unit.properties);
    Ok(out)
}

/// Returns the properties that are stored in the record of a unit. Versions up to 5.3.3 append the properties of the batch
/// (`batch`), since 4.9.3 with a separator between. 5.3.4 and later store those of the unit unchanged (`None`).
pub fn stored_properties<'a>(unit: &'a [u8], batch: Option<&[u8]>) -> Cow<'a, [u8]> {
    let mut out = Cow::Borrowed(unit);
    if let Some(batch) = batch.filter(|batch| !batch.is_empty()) {
        end_properties(&mut out);
        out.to_mut().extend_from_slice(batch);
    }
    out
}
