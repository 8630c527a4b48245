//! Files, mappings and the clock: the interface to the operating system. It never interprets a byte.

/// The SIGBUS guard: a fault under a mapping becomes zeros and a count, and does not end the process.
#[expect(unsafe_code, reason = "a signal handler and the slot table that it reads")]
mod guard;
/// Mapped memory as bounds-checked reads and writes.
#[expect(unsafe_code, reason = "memory that others may change is read through raw pointers")]
mod region;
/// The interface to the operating system, and the contract of each call.
mod env;
/// Fork handling: a child releases the locks of its parent.
#[expect(unsafe_code, reason = "the system's fork handlers and the mutex that they share")]
mod fork;
/// The implementation on Linux.
#[expect(
    unsafe_code,
    reason = "calls that only libc has: open-file-description locks, the clock, sysconf"
)]
mod real_env;
/// A stream socket of the system.
#[expect(unsafe_code, reason = "a signal mask, and a descriptor of a caller")]
mod real_socket;
/// An environment with checks: of a writer's lock, and that a reader's files were not replaced.
mod checked_env;
/// The identity of this process.
mod origin;
/// Directories and small files, created or replaced atomically.
mod replace_file;
/// A file of a queue, mapped for reading, and ranges of it that keep the mapping alive.
mod mapped_file;
/// Bytes of files and memory, sent to a socket.
mod transfer;
/// A file of a queue, open for a few reads that need no mapping.
mod open_file;
/// The buffers in which appended bytes wait until they are written to their segments.
mod transient_store_pool;
/// A segment that is appended to.
mod append_file;
/// The pool of mappings, with CLOCK replacement.
mod mapping_pool;
/// The directory of a queue of files: listing and lengths.
mod directory;
/// A directory of equally long files, each named by the offset of its first byte.
mod mapped_file_queue;

pub use append_file::{AppendFile, WarmUp};
pub use checked_env::CheckedEnv;
pub(crate) use directory::Fitted;
pub use directory::usual_len;
pub use env::{Access, Advice, DirEntry, DiskUsage, EntryKind, Env, File, FileSystem, Lock, Socket, Step};
pub(crate) use fork::ClosedInChild;
pub use fork::Generation;
pub use guard::{faults as guard_faults, install as install_guard};
pub use mapped_file::{MappedFile, SelectedBuffer};
pub use mapped_file_queue::{Expired, MappedFileQueue};
pub use mapping_pool::{MappingPool, PooledFile};
pub use open_file::OpenFile;
pub use origin::Origin;
pub use real_env::RealEnv;
pub use real_socket::RealSocket;
pub use region::Region;
pub use replace_file::{create_dir, put_file, read_file, remove_file, replace_file};
pub use transfer::{Part, Transfer, Unsent, UnsentCause};
pub use transient_store_pool::TransientStorePool;
