//! The identity of this process, from which globally unique keys are made.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use rustix::rand::{GetRandomFlags, getrandom};

/// The identity of this process among those of all machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The source address of this machine, or the loopback address without a network.
    pub address: IpAddr,
    /// The process id.
    pub process_id: u32,
    /// A random number, new in each call.
    pub random: u32,
}

impl Origin {
    /// Returns the origin of this process, with a new random number.
    pub fn draw() -> Self {
        let mut random = [0; 4];
        // Without random numbers (Linux before 3.17), address, process id and time still differ.
        let _ = rustix::io::retry_on_intr(|| getrandom(&mut random, GetRandomFlags::empty()));
        Self {
            address: address(),
            process_id: std::process::id(),
            random: u32::from_be_bytes(random),
        }
    }
}

/// Addresses that are reserved for documentation: the route to them is the default route.
const DOCUMENTATION: [(IpAddr, IpAddr); 2] = [
    (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))),
    (
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    ),
];

/// Returns the source address of a packet to the default route. Nothing is sent: connecting a datagram socket only chooses the
/// address.
fn address() -> IpAddr {
    let source = |(any, target): &(IpAddr, IpAddr)| -> io::Result<IpAddr> {
        let socket = UdpSocket::bind((*any, 0))?;
        socket.connect((*target, 9))?;
        Ok(socket.local_addr()?.ip())
    };
    let found = DOCUMENTATION.iter().find_map(|route| source(route).ok());
    found.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}
