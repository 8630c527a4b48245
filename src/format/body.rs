use std::borrow::Cow;
use std::io::{self, Read};

use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::malformed::Malformed;
use super::sys_flag::{Compression, compression};

/// Most bytes that a body is decompressed to: what a column of Arrow holds.
pub const MAX_DECODED_BODY: usize = 1 << 30;

/// The body as its producer had it: decompressed if the sysFlag says so. `limit` bounds what it may grow to, and with that the
/// memory taken.
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

/// Everything, or `None` if that is more than `limit`: one byte above it is enough to know.
fn drain(decoder: impl Read, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut decoded = Vec::new();
    decoder.take((limit as u64).saturating_add(1)).read_to_end(&mut decoded)?;
    Ok(Some(decoded).filter(|decoded| decoded.len() <= limit))
}

/// The same for an LZ4 frame. Its decoder takes the end of the bytes for the end of the frame, so they are followed by one more,
/// and all of them but that one must have been read.
fn decode_lz4(frame: &[u8], limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut decoder = lz4_flex::frame::FrameDecoder::new(frame.chain(&[0][..]));
    let decoded = drain(&mut decoder, limit)?;
    match decoder.get_ref().get_ref() {
        ([], [_]) => Ok(decoded),
        _ if decoded.is_none() => Ok(None),
        _ => Err(io::Error::other("the LZ4 frame does not end where the body does")),
    }
}

/// The same for a Zstandard frame; reading from its decoder would first decode a whole window, of a size that the frame states.
fn decode_zstd(mut frame: &[u8], limit: usize) -> Result<Option<Vec<u8>>, FrameDecoderError> {
    let mut decoder = FrameDecoder::new();
    decoder.init(&mut frame)?;
    let enough = BlockDecodingStrategy::UptoBytes(limit.saturating_add(1));
    decoder.decode_blocks(&mut frame, enough)?;
    let decoded = decoder.collect().filter(|_| decoder.is_finished());
    Ok(decoded.filter(|decoded| decoded.len() <= limit))
}
