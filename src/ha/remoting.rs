//! The frames of `RocketMQ`'s remoting protocol, over TCP: requests for settings, and their answers. See docs/FORMAT.md, section
//! Replication frames.
//!
//! Only JSON headers are read and written. Sizes are bounded, and memory grows with the bytes that have come, never with a size that a
//! peer states.

use std::collections::BTreeMap;
use std::io::{self, Read};

use serde_json::{Map, Value};

use crate::broker::ReplicatedFile;

/// The result of an answer that has what was asked for.
pub(super) const SUCCESS: i32 = 0;
/// The result of an answer whose remark says what went wrong.
pub(super) const SYSTEM_ERROR: i32 = 1;
/// The result of an answer to a request that the peer does not know.
pub(super) const NOT_SUPPORTED: i32 = 3;
/// The code of a request for the state of a broker.
pub(super) const RUNTIME_INFO: i32 = 28;
/// The field of an answer with the end of the durable log, after what it answers was read.
pub(super) const LOG_END: &str = "mqstoreLogEnd";
/// The field of an answer with the checksum of the log before that end.
pub(super) const LOG_CHECKSUM: &str = "mqstoreLogChecksum";
/// The most bytes of a frame: RocketMQ's `com.rocketmq.remoting.frameMaxLength`.
pub(super) const MAX_FRAME: usize = 16 * 1024 * 1024;
/// The most bytes of a header.
const MAX_HEADER: usize = 64 * 1024;
/// The serialization of a header as JSON.
const JSON: u32 = 0;
/// The bits of the length of a header, below its serialization.
const LENGTH_BITS: u32 = 24;
/// The flag of an answer.
const IS_ANSWER: i32 = 1;
/// The flag of a request without an answer.
const IS_ONE_WAY: i32 = 2;

/// Returns the code of the request for a settings file.
pub(super) fn code_of(file: ReplicatedFile) -> i32 {
    match file {
        ReplicatedFile::Topics => 21,
        ReplicatedFile::ConsumerOffsets => 43,
        ReplicatedFile::DelayOffsets => 45,
        ReplicatedFile::Groups => 201,
    }
}

/// A request, or the answer to one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemotingCommand {
    /// The code of a request, or the result of an answer: 0 is success.
    pub code: i32,
    /// The number of the request, which its answer repeats.
    pub opaque: i32,
    /// Bit 0: an answer; bit 1: a request without an answer.
    pub flag: i32,
    /// The reason of a failure.
    pub remark: Option<String>,
    /// Further fields.
    pub ext_fields: BTreeMap<String, String>,
    /// The bytes after the header.
    pub body: Vec<u8>,
}

impl RemotingCommand {
    /// Returns a request without fields and body.
    pub fn request(code: i32, opaque: i32) -> Self {
        Self {
            code,
            opaque,
            ..Self::default()
        }
    }

    /// Returns an answer to this request, without a body.
    #[must_use]
    pub fn answer(&self, code: i32, remark: Option<String>) -> Self {
        Self {
            code,
            opaque: self.opaque,
            flag: IS_ANSWER,
            remark,
            ..Self::default()
        }
    }

    /// Returns true for an answer.
    pub fn is_answer(&self) -> bool {
        self.flag & IS_ANSWER != 0
    }

    /// Returns true for a request without an answer.
    pub fn is_one_way(&self) -> bool {
        self.flag & IS_ONE_WAY != 0
    }

    /// Returns the bytes of the frame.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if no peer takes a frame of that size.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let header = self.header();
        let len = size_of::<u32>() + header.len() + self.body.len();
        if header.len() > MAX_HEADER || len > MAX_FRAME {
            return Err(invalid(format!("a frame has {len} bytes: the most are {MAX_FRAME}")));
        }
        let mut frame = Vec::with_capacity(size_of::<u32>() + len);
        frame.extend((len as u32).to_be_bytes());
        frame.extend((JSON << LENGTH_BITS | header.len() as u32).to_be_bytes());
        frame.extend(header);
        frame.extend(&self.body);
        Ok(frame)
    }

    fn header(&self) -> Vec<u8> {
        let fields = self.ext_fields.iter();
        let fields: Map<_, _> = fields
            .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
            .collect();
        let header = serde_json::json!({
            "code": self.code,
            "extFields": fields,
            "flag": self.flag,
            "language": "OTHER",
            "opaque": self.opaque,
            "remark": self.remark,
            "serializeTypeCurrentRPC": "JSON",
            "version": 0,
        });
        header.to_string().into_bytes()
    }

    /// Reads a frame of at most `most` bytes; `None` at the end of the stream.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] for bytes that are no frame; [`io::ErrorKind::UnexpectedEof`] for a part of one; those of the stream.
    pub fn read(stream: &mut impl Read, most: usize) -> io::Result<Option<Self>> {
        let Some(len) = read_number(stream)? else {
            return Ok(None);
        };
        let word = read_number(stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let (serialization, header_len) = (word >> LENGTH_BITS, (word & ((1 << LENGTH_BITS) - 1)) as usize);
        let rest = (len as usize)
            .checked_sub(size_of::<u32>())
            .filter(|rest| *rest < most && header_len <= MAX_HEADER.min(*rest));
        let Some(rest) = rest else {
            return Err(invalid(format!(
                "a frame of {len} bytes with a header of {header_len}: this is no remoting frame"
            )));
        };
        if serialization != JSON {
            return Err(invalid(format!(
                "a header with the serialization {serialization}: only JSON (0) is read, so leave rocketmq.serialize.type out there"
            )));
        }
        let mut bytes = Vec::new();
        stream.take(rest as u64).read_to_end(&mut bytes)?;
        if bytes.len() < rest {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let body = bytes.split_off(header_len);
        let header = Header::parse(&bytes).ok_or_else(|| invalid("a header that is not that of a remoting frame".to_owned()))?;
        Ok(Some(Self { body, ..header.0 }))
    }
}

/// The header of a frame, as a command without a body.
struct Header(RemotingCommand);

impl Header {
    fn parse(json: &[u8]) -> Option<Self> {
        let fields: Map<String, Value> = serde_json::from_slice(json).ok()?;
        let number = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => Some(0),
            Some(value) => i32::try_from(value.as_i64()?).ok(),
        };
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let ext_fields = fields.get("extFields").and_then(Value::as_object).into_iter().flatten();
        fields.get("code")?.as_i64()?;
        Some(Self(RemotingCommand {
            code: number("code")?,
            opaque: number("opaque")?,
            flag: number("flag")?,
            remark: fields.get("remark").and_then(Value::as_str).map(str::to_owned),
            ext_fields: ext_fields.map(|(name, value)| (name.clone(), text(value))).collect(),
            body: Vec::new(),
        }))
    }
}

/// Reads a number of four bytes; `None` at the end of the stream.
fn read_number(stream: &mut impl Read) -> io::Result<Option<u32>> {
    let (mut bytes, mut read) = ([0; size_of::<u32>()], 0);
    while let Some(free @ [_, ..]) = bytes.get_mut(read..) {
        match stream.read(free) {
            Ok(0) if read == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(u32::from_be_bytes(bytes)))
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
