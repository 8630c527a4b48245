//! A store directory in memory: copied, damaged and opened thousands of times without a system call.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use mqstore::storage::{Access, Advice, DirEntry, DiskUsage, EntryKind, Env, File, FileSystem, Lock, Region, Step};

/// Bytes of a file, and the same as memory that can be mapped.
#[derive(Debug)]
pub(crate) struct Content {
    bytes: Vec<u8>,
    words: OnceLock<Arc<[AtomicU64]>>,
}

impl Clone for Content {
    fn clone(&self) -> Self {
        Self::of(self.bytes.clone())
    }
}

impl Content {
    fn of(bytes: Vec<u8>) -> Self {
        let words = OnceLock::new();
        Self { bytes, words }
    }

    fn words(&self) -> Arc<[AtomicU64]> {
        let word = |chunk: &[u8]| {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            AtomicU64::new(u64::from_be_bytes(bytes).to_be())
        };
        self.words.get_or_init(|| self.bytes.chunks(8).map(word).collect()).clone()
    }
}

/// The target of a name.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    File(Arc<Content>),
    Directory,
    Link(PathBuf),
    Pipe,
    Socket,
}

/// A directory with everything below it, by path from there. Every parent of a name is in it, too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Image(BTreeMap<PathBuf, Node>);

impl Image {
    /// Reads a directory. A live writer renames the segment that it makes ahead: where a file is gone, all are read again.
    pub(crate) fn of(dir: &Path) -> Self {
        let mut reads = 1;
        loop {
            match Self::read(dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && dir.exists() && reads < 20 => reads += 1,
                read => return read.unwrap(),
            }
        }
    }

    fn read(dir: &Path) -> io::Result<Self> {
        let mut image = Self::default();
        let mut dirs = vec![dir.to_owned()];
        while let Some(next) = dirs.pop() {
            for entry in fs::read_dir(next)? {
                let path = entry?.path();
                let name = path.strip_prefix(dir).unwrap().to_owned();
                let kind = fs::symlink_metadata(&path)?.file_type();
                if kind.is_dir() {
                    image.put(&name, Node::Directory);
                    dirs.push(path);
                } else if kind.is_file() {
                    image.put_file(&name, fs::read(&path)?);
                } else if kind.is_symlink() {
                    image.put(&name, Node::Link(fs::read_link(&path)?));
                } else {
                    image.put(&name, if kind.is_fifo() { Node::Pipe } else { Node::Socket });
                }
            }
        }
        Ok(image)
    }

    /// Puts an entry at a path, and removes what was there and below it.
    pub(crate) fn put(&mut self, name: &Path, node: Node) {
        self.remove(name);
        for parent in name.ancestors().skip(1).filter(|parent| *parent != Path::new("")) {
            self.0.insert(parent.to_owned(), Node::Directory);
        }
        self.0.insert(name.to_owned(), node);
    }

    pub(crate) fn put_file(&mut self, name: &Path, bytes: Vec<u8>) {
        self.put(name, Node::File(Arc::new(Content::of(bytes))));
    }

    pub(crate) fn remove(&mut self, name: &Path) {
        self.0.retain(|path, _| !path.starts_with(name));
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path) {
        let node = self.0[from].clone();
        self.remove(from);
        self.put(to, node);
    }

    /// The files, in the order of their names.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.0.iter().filter_map(|(name, node)| match node {
            Node::File(content) => Some((&**name, &*content.bytes)),
            _ => None,
        })
    }

    pub(crate) fn directories(&self) -> impl Iterator<Item = &Path> {
        let directories = self.0.iter().filter(|(_, node)| matches!(node, Node::Directory));
        directories.map(|(name, _)| &**name)
    }

    pub(crate) fn file(&self, name: &Path) -> Option<&[u8]> {
        match self.0.get(name)? {
            Node::File(content) => Some(&content.bytes),
            _ => None,
        }
    }

    /// Changes the bytes of a file that is there.
    pub(crate) fn edit<T>(&mut self, name: &Path, change: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let Some(Node::File(content)) = self.0.get_mut(name) else {
            panic!("{} is not a file", name.display())
        };
        let content = Arc::make_mut(content);
        content.words.take();
        change(&mut content.bytes)
    }

    /// Returns true if only a real directory can hold it.
    pub(crate) fn needs_disk(&self) -> bool {
        self.0
            .values()
            .any(|node| matches!(node, Node::Link(_) | Node::Pipe | Node::Socket))
    }

    /// Returns true if a link leads to another file, or a directory, of the image.
    pub(crate) fn has_two_names(&self) -> bool {
        let leads = |(name, node): (&PathBuf, &Node)| match node {
            // A lock writes nothing.
            Node::Link(to) if name != Path::new("lock") => {
                let mut target = name.parent().unwrap_or(name).to_owned();
                for part in to {
                    if part == ".." {
                        target.pop();
                    } else if part != "." {
                        target.push(part);
                    }
                }
                target != *name && (target == Path::new("") || self.0.contains_key(&target))
            }
            _ => false,
        };
        self.0.iter().any(leads)
    }

    /// Every name with what it stands for, parents first.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&Path, &Node)> {
        self.0.iter().map(|(name, node)| (&**name, node))
    }

    /// Files and directories as an environment that cannot be changed, below `root`.
    pub(crate) fn env(&self, root: &Path) -> Arc<dyn Env> {
        assert!(!self.needs_disk());
        Arc::new(ImageEnv {
            root: root.to_owned(),
            image: self.clone(),
        })
    }
}

#[derive(Debug)]
struct ImageEnv {
    root: PathBuf,
    image: Image,
}

fn refused<T>(kind: io::ErrorKind) -> io::Result<T> {
    Err(kind.into())
}

impl ImageEnv {
    fn node(&self, path: &Path) -> io::Result<&Node> {
        let name = path.strip_prefix(&self.root).map_err(|_| io::ErrorKind::NotFound)?;
        if name == Path::new("") {
            return Ok(&Node::Directory);
        }
        let parents = name.ancestors().skip(1).filter_map(|parent| self.image.0.get(parent));
        if parents.into_iter().any(|parent| !matches!(parent, Node::Directory)) {
            return refused(io::ErrorKind::NotADirectory);
        }
        self.image.0.get(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Env for ImageEnv {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        assert_eq!(access, Access::Read, "{} is opened for writing", path.display());
        match self.node(path)? {
            Node::File(content) => Ok(Arc::new(ImageFile(content.clone()))),
            _ => refused(io::ErrorKind::InvalidInput),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let Node::Directory = self.node(dir)? else {
            return refused(io::ErrorKind::NotADirectory);
        };
        let name = dir.strip_prefix(&self.root).map_err(|_| io::ErrorKind::NotFound)?;
        let below = self.image.0.range(name.to_owned()..);
        let below = below.take_while(|(path, _)| path.starts_with(name));
        Ok(below
            .filter(|(path, _)| path.parent() == Some(name))
            .map(|(path, node)| DirEntry {
                name: path.file_name().unwrap().to_owned(),
                kind: if matches!(node, Node::File(_)) {
                    EntryKind::File
                } else {
                    EntryKind::Directory
                },
                len: self.image.file(path).map_or(0, |bytes| bytes.len() as u64),
            })
            .collect())
    }

    fn create(&self, _path: &Path) -> io::Result<Arc<dyn File>> {
        refused(io::ErrorKind::ReadOnlyFilesystem)
    }

    fn create_dir(&self, _path: &Path) -> io::Result<()> {
        refused(io::ErrorKind::ReadOnlyFilesystem)
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        refused(io::ErrorKind::ReadOnlyFilesystem)
    }

    fn rename_noreplace(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        refused(io::ErrorKind::ReadOnlyFilesystem)
    }

    fn unlink(&self, _path: &Path) -> io::Result<()> {
        refused(io::ErrorKind::ReadOnlyFilesystem)
    }

    fn sync_dir(&self, _dir: &Path, _step: Step) -> io::Result<()> {
        refused(io::ErrorKind::ReadOnlyFilesystem)
    }

    fn file_system(&self, _dir: &Path) -> io::Result<Arc<dyn FileSystem>> {
        refused(io::ErrorKind::ReadOnlyFilesystem)
    }

    fn lock(&self, _path: &Path) -> io::Result<Lock> {
        refused(io::ErrorKind::ReadOnlyFilesystem)
    }

    fn is_locked(&self, _path: &Path) -> io::Result<bool> {
        Ok(false)
    }

    fn now_ms(&self) -> i64 {
        0
    }

    fn now_local_ms(&self) -> i64 {
        0
    }

    fn monotonic_ns(&self) -> i64 {
        0
    }

    fn physical_memory(&self) -> u64 {
        8 << 30
    }

    fn disk_usage(&self, _path: &Path) -> io::Result<DiskUsage> {
        refused(io::ErrorKind::Unsupported)
    }

    fn modified_ms(&self, _path: &Path) -> io::Result<i64> {
        refused(io::ErrorKind::Unsupported)
    }
}

#[derive(Debug)]
struct ImageFile(Arc<Content>);

impl File for ImageFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.bytes.len() as u64)
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let rest = usize::try_from(at)
            .ok()
            .and_then(|at| self.0.bytes.get(at..))
            .unwrap_or_default();
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&self, _bytes: &[u8], _at: u64) -> io::Result<usize> {
        refused(io::ErrorKind::ReadOnlyFilesystem)
    }

    fn sync(&self, _step: Step) -> io::Result<()> {
        refused(io::ErrorKind::ReadOnlyFilesystem)
    }

    fn sync_range(&self, _range: Range<u64>, _step: Step) -> io::Result<()> {
        refused(io::ErrorKind::ReadOnlyFilesystem)
    }

    fn allocate(&self, _len: u64) -> io::Result<()> {
        refused(io::ErrorKind::ReadOnlyFilesystem)
    }

    fn zero(&self, _range: Range<u64>) -> io::Result<()> {
        refused(io::ErrorKind::ReadOnlyFilesystem)
    }

    fn advise(&self, _range: Range<u64>, _advice: Advice) -> io::Result<()> {
        Ok(())
    }

    fn map(&self, len: usize, access: Access) -> io::Result<Region> {
        assert_eq!(access, Access::Read);
        if self.0.bytes.len() < len {
            return refused(io::ErrorKind::InvalidInput);
        }
        Region::on_heap(self.0.words(), len).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}
