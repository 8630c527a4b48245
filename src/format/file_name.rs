use super::date::Date;

/// Digits in the name of a segment or queue file.
const DIGITS: usize = 20;

/// Returns the name of the segment or queue file that starts at this byte: 20 decimal digits.
pub fn segment_name(offset: u64) -> String {
    format!("{offset:0DIGITS$}")
}

/// Parses the name of a segment or queue file into the byte at which it starts; `None` unless it is exactly 20 digits of a 64-bit
/// number.
pub fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.len() == DIGITS && name.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| name.parse().ok()).flatten()
}

/// Parses the name of an index file into a number that orders the files by age. A broker writes its local time as 17 digits
/// (`yyyyMMddHHmmssSSS`) and skips every name that is not a decimal number.
pub fn parse_index_name(name: &str) -> Option<i64> {
    name.parse().ok()
}

/// Returns the number in the name of an index file created at this local time, in ms since 1970: date and time as 17 digits.
pub fn index_name(local_ms: i64) -> i64 {
    let (days, ms) = (local_ms.div_euclid(86_400_000), local_ms.rem_euclid(86_400_000));
    let (seconds, ms) = (ms / 1000, ms % 1000);
    // An i64 of milliseconds is a number of days that `Date` can count.
    let date = Date::of(days).map_or(0, |date| (date.year * 100 + date.month) * 100 + date.day);
    let time = (seconds / 3600 * 100 + seconds / 60 % 60) * 100 + seconds % 60;
    (date * 1_000_000 + time) * 1000 + ms
}

/// Returns the start of the file that contains byte `offset`, and the position in it, where each file has `file_size` bytes and the
/// first starts at 0.
pub fn locate(offset: u64, file_size: u64) -> (u64, u64) {
    let position = offset.checked_rem(file_size).unwrap_or(offset);
    (offset - position, position)
}
