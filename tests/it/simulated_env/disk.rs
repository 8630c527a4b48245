//! The machine's files and directories, and what a power cut makes of them.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::directory::{Directory, Inode, Kept};
use super::image::{Decision, Fate, Image, Loss};
use super::random::Random;

/// The root directory.
const ROOT: Inode = 0;

#[derive(Debug)]
enum Node {
    File(Image),
    Directory(Directory),
    /// No name led to it when the power went.
    Gone,
}

/// All files and directories, reached from the root.
#[derive(Debug)]
pub(super) struct Disk {
    nodes: Vec<Node>,
    /// Number of the next change of a directory.
    changes: u64,
}

/// The decisions of a power cut.
#[derive(Debug, Clone, Default)]
pub(crate) struct CrashReport {
    /// A line each, for people; none unless asked for.
    pub(crate) lines: Vec<String>,
    are_lines_wanted: bool,
    /// Sectors that are neither old nor new: the file, and where in it.
    pub(crate) torn: Vec<(PathBuf, usize)>,
}

impl Disk {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![Node::Directory(Directory::default())],
            changes: 0,
        }
    }

    /// Returns a copy of the disk for another machine: nothing is shared.
    pub(super) fn copy(&self) -> Self {
        let copy = |node: &Node| match node {
            Node::File(image) => Node::File(image.copy()),
            Node::Directory(directory) => Node::Directory(directory.clone()),
            Node::Gone => Node::Gone,
        };
        Self {
            nodes: self.nodes.iter().map(copy).collect(),
            changes: self.changes,
        }
    }

    /// Returns the target of a path.
    pub(super) fn find(&self, path: &Path) -> io::Result<Inode> {
        let mut at = ROOT;
        for component in path.components() {
            if let Component::Normal(name) = component {
                at = self.directory(at)?.get(name).ok_or(io::ErrorKind::NotFound)?;
            }
        }
        Ok(at)
    }

    /// Returns the directory of a path's last name, and that name.
    fn place(&self, path: &Path) -> io::Result<(Inode, OsString)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let dir = self.find(path.parent().unwrap_or(Path::new("/")))?;
        self.directory(dir)?;
        Ok((dir, name.to_owned()))
    }

    pub(super) fn directory(&self, inode: Inode) -> io::Result<&Directory> {
        match &self.nodes[inode] {
            Node::Directory(directory) => Ok(directory),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn directory_mut(&mut self, inode: Inode) -> &mut Directory {
        match &mut self.nodes[inode] {
            Node::Directory(directory) => directory,
            _ => panic!("{inode} is not a directory"),
        }
    }

    /// The file of an inode; `InvalidInput` for anything else.
    pub(super) fn file(&self, inode: Inode) -> io::Result<&Image> {
        match &self.nodes[inode] {
            Node::File(image) => Ok(image),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    pub(super) fn file_mut(&mut self, inode: Inode) -> &mut Image {
        match &mut self.nodes[inode] {
            Node::File(image) => image,
            _ => panic!("{inode} is not a file"),
        }
    }

    fn change(&mut self, dir: Inode, sets: Vec<(OsString, Option<Inode>)>) {
        let number = self.changes;
        self.changes += 1;
        self.directory_mut(dir).change(number, sets);
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<Inode> {
        let (dir, name) = self.place(path)?;
        if self.directory(dir)?.get(&name).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.nodes.push(node);
        let inode = self.nodes.len() - 1;
        self.change(dir, vec![(name, Some(inode))]);
        Ok(inode)
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<Inode> {
        self.add(path, Node::File(Image::new()))
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        self.add(path, Node::Directory(Directory::default())).map(drop)
    }

    pub(super) fn unlink(&mut self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        let inode = self.directory(dir)?.get(&name).ok_or(io::ErrorKind::NotFound)?;
        if matches!(self.nodes[inode], Node::Directory(_)) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.change(dir, vec![(name, None)]);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_dir, from) = self.place(from)?;
        let (to_dir, to) = self.place(to)?;
        let inode = self.directory(from_dir)?.get(&from).ok_or(io::ErrorKind::NotFound)?;
        if from_dir == to_dir {
            self.change(from_dir, vec![(from, None), (to, Some(inode))]);
        } else {
            self.change(to_dir, vec![(to, Some(inode))]);
            self.change(from_dir, vec![(from, None)]);
        }
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.find(path)?;
        self.directory(inode)?;
        self.directory_mut(inode).sync();
        Ok(())
    }

    pub(super) fn sync_all(&mut self) {
        for node in &mut self.nodes {
            match node {
                Node::File(image) => image.sync(0..usize::MAX),
                Node::Directory(directory) => directory.sync(),
                Node::Gone => {}
            }
        }
    }

    /// A sync of everything that fails: no file's unwritten bytes are written by a later one.
    pub(super) fn fail_sync_all(&mut self) {
        for node in &mut self.nodes {
            if let Node::File(image) = node {
                image.fail_sync(0..usize::MAX);
            }
        }
    }

    /// Returns true if a power cut could change anything below a path.
    pub(super) fn is_durable(&self, path: &Path) -> bool {
        let Ok(inode) = self.find(path) else { return true };
        self.walk(inode, path).into_iter().all(|(_, inode)| match &self.nodes[inode] {
            Node::File(image) => image.is_durable(),
            Node::Directory(directory) => directory.is_durable(),
            Node::Gone => true,
        })
    }

    /// Every file below a path, by its path, with what processes see in it.
    pub(super) fn files(&self, below: &Path) -> Vec<(PathBuf, &[u8])> {
        let Ok(inode) = self.find(below) else { return Vec::new() };
        let all = self.walk(inode, below).into_iter();
        all.filter_map(|(path, inode)| match &self.nodes[inode] {
            Node::File(image) => Some((path, image.bytes())),
            _ => None,
        })
        .collect()
    }

    /// Returns everything that names lead to from here.
    fn walk(&self, inode: Inode, path: &Path) -> Vec<(PathBuf, Inode)> {
        let mut found = vec![(path.to_owned(), inode)];
        let mut at = 0;
        while at < found.len() {
            let (path, inode) = found[at].clone();
            if let Node::Directory(directory) = &self.nodes[inode] {
                found.extend(directory.entries().map(|(name, inode)| (path.join(name), inode)));
            }
            at += 1;
        }
        found
    }

    /// The disk after a power cut, and what was decided for whatever no sync had covered.
    pub(super) fn crashed(&self, seed: u64, are_lines_wanted: bool) -> (Self, CrashReport) {
        let mut random = Random::new(seed);
        let loss = match random.below(16) {
            0..9 => Loss::Any,
            9..12 => Loss::All,
            12 => Loss::Nothing,
            13..15 => Loss::Torn,
            _ => Loss::Garbage,
        };
        let kept = match random.below(4) {
            0 => Kept::Before(0),
            1 => Kept::Before(u64::MAX),
            2 => Kept::Before(self.changes - random.below(20.min(self.changes + 1))),
            _ => Kept::Any,
        };
        let mut after = Self {
            nodes: self.nodes.iter().map(|_| Node::Gone).collect(),
            changes: self.changes,
        };
        let mut report = CrashReport {
            are_lines_wanted,
            ..CrashReport::default()
        };
        let mut to_do = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, inode)) = to_do.pop() {
            if !matches!(after.nodes[inode], Node::Gone) {
                continue; // a file that has two names
            }
            after.nodes[inode] = match &self.nodes[inode] {
                Node::Gone => Node::Gone,
                Node::File(image) => Node::File(image.crashed(loss, &mut random, &mut |decision| {
                    report.tell(&path, decision);
                })),
                Node::Directory(directory) => {
                    let left = directory.crashed(kept, |names, decided| {
                        let happened = decided.unwrap_or_else(|| random.one_in(2));
                        report.tell_names(&path, names, happened);
                        happened
                    });
                    to_do.extend(left.entries().map(|(name, inode)| (path.join(name), inode)));
                    Node::Directory(left)
                }
            };
        }
        (after, report)
    }
}

impl CrashReport {
    fn tell(&mut self, path: &Path, decision: Decision) {
        if let Decision::Sector(at, Fate::Torn | Fate::Spoiled) = decision {
            self.torn.push((path.to_owned(), at));
        }
        if !self.are_lines_wanted {
            return;
        }
        let what = match decision {
            Decision::Length(true) => "its new length is there".to_owned(),
            Decision::Length(false) => "its new length is lost".to_owned(),
            Decision::Sector(at, fate) => format!("bytes {at}.. are {fate:?}"),
        };
        self.lines.push(format!("{}: {what}", path.display()));
    }

    fn tell_names(&mut self, dir: &Path, names: &str, happened: bool) {
        if !self.are_lines_wanted {
            return;
        }
        let what = if happened { "is there" } else { "is lost" };
        self.lines.push(format!("{}: {names} {what}", dir.display()));
    }
}
