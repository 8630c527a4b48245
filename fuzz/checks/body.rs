//! Takes any bytes as a compressed body: the first byte selects the compression.

use mqstore::format::decode_body;

const LIMIT: usize = 1 << 20;

pub fn check(bytes: &[u8]) {
    let Some((kind, body)) = bytes.split_first() else {
        return;
    };
    let sys_flag = 1 | i32::from(kind % 4) << 8;
    if let Ok(decoded) = decode_body(sys_flag, body, LIMIT) {
        assert!(decoded.len() <= LIMIT);
    }
}
