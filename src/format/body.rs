use std::borrow::Cow;
use std::io::{self, Read};

use super::malformed::Malformed;
use super::sys_flag::{Compression, compression};

/// The body as its producer had it: decompressed if the sysFlag says so. `limit` bounds what it may grow to, and with that the
/// memory taken.
pub fn decode_body(sys_flag: i32, body: &[u8], limit: usize) -> Result<Cow<'_, [u8]>, Malformed> {
    let decoded = match compression(sys_flag)? {
        Compression::None => return Ok(Cow::Borrowed(body)),
        Compression::Zlib => drain(flate2::read::ZlibDecoder::new(body), limit),
        Compression::Lz4 => drain(lz4_flex::frame::FrameDecoder::new(body), limit),
        Compression::Zstd => match ruzstd::decoding::StreamingDecoder::new(body) {
            Ok(decoder) => drain(decoder, limit),
            Err(error) => Err(io::Error::other(error)),
        },
    };
    match decoded {
        Ok(decoded) if decoded.len() > limit => {
            let reason = format!("the body decompresses to more than {limit} bytes");
            Err(Malformed::new(0, reason))
        }
        Ok(decoded) => Ok(Cow::Owned(decoded)),
        Err(error) => Err(Malformed::new(0, format!("the body does not decompress: {error}"))),
    }
}

/// Reads at most one byte more than the limit, which is enough to see that it was passed.
fn drain(decoder: impl Read, limit: usize) -> io::Result<Vec<u8>> {
    let mut decoded = Vec::new();
    decoder.take((limit as u64).saturating_add(1)).read_to_end(&mut decoded)?;
    Ok(decoded)
}
