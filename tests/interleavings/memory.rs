//! Memory that loom watches, for the transient store pool.
//!
//! The pool is the real one. A region of memory is a model: beside its bytes it has a cell of loom for each of them. Each access to a byte
//! accesses its cell, and loom fails where a read and a write, or two writes, of one byte are in no order.
#![expect(unsafe_code, reason = "the bytes lie beside the cells that say who may access them")]

pub(crate) mod fork {
    pub(crate) use crate::storage::Generation;
}

pub(crate) mod region {
    use std::io;
    use std::ops::Range;

    use loom::cell::UnsafeCell;

    #[derive(Debug)]
    pub(crate) struct Region {
        cells: Box<[UnsafeCell<()>]>,
        bytes: std::cell::UnsafeCell<Box<[u8]>>,
    }

    // SAFETY: loom runs one thread at a time. An access that another thread may make at the same time fails at its cell.
    unsafe impl Sync for Region {}
    // SAFETY: as above.
    unsafe impl Send for Region {}

    impl Region {
        #[expect(clippy::unnecessary_wraps, reason = "as the real one")]
        pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
            Ok(Self {
                cells: (0..len).map(|_| UnsafeCell::new(())).collect(),
                bytes: std::cell::UnsafeCell::new(vec![0; len].into()),
            })
        }

        #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as the real one")]
        pub(crate) fn lock(&self) -> io::Result<()> {
            Ok(())
        }

        pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> bool {
            for (at, byte) in (at..).zip(bytes) {
                self.cells[at].with_mut(|_| {
                    // SAFETY: the cell has just said that nobody reads or writes this byte.
                    unsafe { (&mut *self.bytes.get())[at] = *byte };
                });
            }
            true
        }

        pub(crate) fn write_parts(&self, at: usize, parts: &[&[u8]]) -> bool {
            let bytes = parts.concat();
            at + bytes.len() <= self.cells.len() && self.write(at, &bytes)
        }

        pub(crate) fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
            for cell in &self.cells[range.clone()] {
                cell.with(|_| ());
            }
            // SAFETY: the cells have just said that nobody writes there. The caller is done with the bytes before anybody does.
            unsafe { (&*self.bytes.get()).get(range) }
        }
    }
}
