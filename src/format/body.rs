use std::borrow::Cow;
use std::io::{self, Read};

use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::malformed::Malformed;
use super::sys_flag::{Compression, compression};

/// The most bytes that a body is decompressed to: the limit of a value in an Arrow column.
pub const MAX_DECODED_BODY: usize = 1 << 30;

/// Returns the body as its producer had it: decompressed if the sysFlag says so. The result, and with it the memory taken, is at
/// most `limit` bytes.
pub fn decode_body(sys_flag: i32, body: &[u8], limit: usize) -> Result<Cow<'_, [u8]>, Malformed> {
    let decoded = match compression(sys_flag)? {
        Compression::None => return Ok(Cow::Borrowed(body)),
        Compression::Zlib => drain(flate2::read::ZlibDecoder::new(body), limit),
        Compression::Lz4 => decode_lz4(body, limit),
        Compression::Zstd => decode_zstd(body, limit).map_err(io::Error::other),
    };
    match decoded {
        Ok(Some(decoded)) => Ok(Cow::Owned(decoded)),
        Ok(None) => Err(Malformed::new(0, format!("the body decompresses to more than {limit} bytes"))),
        Err(error) => Err(Malformed::new(0, format!("the body does not decompress: {error}"))),
    }
}

/// Reads `decoder` to its end; `None` if that is more than `limit` bytes. Reading one byte past the limit is enough to know.
fn drain(decoder: impl Read, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut decoded = Vec::new();
    decoder.take((limit as u64).saturating_add(1)).read_to_end(&mut decoded)?;
    Ok(Some(decoded).filter(|decoded| decoded.len() <= limit))
}

/// Decompresses an LZ4 frame, as [`drain`] does. The decoder takes the end of its input for the end of the frame. So one more byte
/// follows the input, and the frame is whole only if the decoder has read everything but that byte.
fn decode_lz4(frame: &[u8], limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut decoder = lz4_flex::frame::FrameDecoder::new(frame.chain(&[0][..]));
    let decoded = drain(&mut decoder, limit)?;
    match decoder.get_ref().get_ref() {
        ([], [_]) => Ok(decoded),
        _ if decoded.is_none() => Ok(None),
        _ => Err(io::Error::other("the LZ4 frame does not end where the body does")),
    }
}

/// Decompresses a Zstandard frame, as [`drain`] does. Reading from the decoder would first decode a whole window, and the frame
/// states the size of that window.
fn decode_zstd(mut frame: &[u8], limit: usize) -> Result<Option<Vec<u8>>, FrameDecoderError> {
    let mut decoder = FrameDecoder::new();
    decoder.init(&mut frame)?;
    let enough = BlockDecodingStrategy::UptoBytes(limit.saturating_add(1));
    decoder.decode_blocks(&mut frame, enough)?;
    let decoded = decoder.collect().filter(|_| decoder.is_finished());
    Ok(decoded.filter(|decoded| decoded.len() <= limit))
}
