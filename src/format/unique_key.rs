use std::fmt;
use std::net::IpAddr;

use super::date::Date;

// address (4 or 16 bytes) | process i16 | producer i32 | ms since the month began i32 | counter i16        in capital hexadecimal digits

const MS_OF_DAY: i64 = 86_400_000;

/// The id that a producer gives a message before it sends it, stored in the property `UNIQ_KEY` (docs/FORMAT.md, section Message
/// ids).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UniqueKey {
    /// The address of the producer.
    pub address: IpAddr,
    /// The last 16 bits of its process id.
    pub process: u16,
    /// Distinguishes the producers of one process: the hash of a class loader in `RocketMQ`, a random number here.
    pub producer: u32,
    /// The time since the start of the month, by local time, in ms.
    pub ms_of_month: u32,
    /// Distinguishes the keys of one ms.
    pub counter: u16,
}

/// Writes 32 capital hexadecimal digits, 56 with an IPv6 address.
impl fmt::Display for UniqueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            IpAddr::V4(address) => write!(f, "{:08X}", address.to_bits())?,
            IpAddr::V6(address) => write!(f, "{:032X}", address.to_bits())?,
        }
        let Self {
            process,
            producer,
            ms_of_month,
            counter,
            ..
        } = self;
        write!(f, "{process:04X}{producer:08X}{ms_of_month:08X}{counter:04X}")
    }
}

/// Returns the time since the start of its month, of a time in ms since 1970.
pub fn ms_of_month(ms: i64) -> u32 {
    let days_before = Date::of(ms.div_euclid(MS_OF_DAY)).map_or(0, |date| date.day - 1);
    (days_before * MS_OF_DAY + ms.rem_euclid(MS_OF_DAY)) as u32
}
