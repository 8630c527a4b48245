use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::bytes::{i32_at, ipv4_at, ipv6_at, put, put_i32};
use super::malformed::Malformed;

// address (4 or 16 bytes, by a sysFlag bit of the record) | port i32

/// Bytes of a host with an IPv4 address.
pub(super) const HOST_V4_SIZE: usize = 4 + PORT_SIZE;
/// Bytes of a host with an IPv6 address.
pub(super) const HOST_V6_SIZE: usize = 16 + PORT_SIZE;
const PORT_SIZE: usize = 4;
const _: () = assert!(HOST_V4_SIZE == 8 && HOST_V6_SIZE == 20);

/// The address and port of a producer or a broker. The port takes four bytes on disk, and any value in them is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    /// 4 or 16 bytes on disk.
    pub address: IpAddr,
    /// The port as stored, which may be outside 0..=65535.
    pub port: i32,
}

impl Host {
    /// 127.0.0.1, port 0.
    pub const LOCAL: Self = Self {
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: 0,
    };

    pub(super) fn read_at(bytes: &[u8], at: usize, v6: bool) -> Self {
        if v6 {
            let address = IpAddr::V6(Ipv6Addr::from(ipv6_at(bytes, at)));
            let port = i32_at(bytes, at + HOST_V6_SIZE - PORT_SIZE);
            Self { address, port }
        } else {
            let address = IpAddr::V4(Ipv4Addr::from(ipv4_at(bytes, at)));
            let port = i32_at(bytes, at + HOST_V4_SIZE - PORT_SIZE);
            Self { address, port }
        }
    }

    pub(super) fn is_v6(self) -> bool {
        self.address.is_ipv6()
    }

    #[inline]
    pub(super) fn put_at(self, out: &mut [u8], at: usize) {
        match self.address {
            IpAddr::V4(address) => {
                put(out, at, &address.octets());
                put_i32(out, at + HOST_V4_SIZE - PORT_SIZE, self.port);
            }
            IpAddr::V6(address) => {
                put(out, at, &address.octets());
                put_i32(out, at + HOST_V6_SIZE - PORT_SIZE, self.port);
            }
        }
    }
}

/// Writes `1.2.3.4:10911` or `[2001:db8::1]:10911`.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            IpAddr::V4(address) => write!(f, "{address}:{}", self.port),
            IpAddr::V6(address) => write!(f, "[{address}]:{}", self.port),
        }
    }
}

/// Parses what `Display` writes, and RocketMQ's form of an IPv6 host, without brackets.
impl FromStr for Host {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let wrong = || {
            Malformed::new(
                0,
                format!("{text:?} is not a host: write 1.2.3.4:10911 or [2001:db8::1]:10911"),
            )
        };
        let (address, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let unbracketed = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let address = match unbracketed {
            Some(address) => IpAddr::V6(address.parse().map_err(|_| wrong())?),
            None => address.parse().map_err(|_| wrong())?,
        };
        let port = port.parse().map_err(|_| wrong())?;
        Ok(Self { address, port })
    }
}
