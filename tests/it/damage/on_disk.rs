//! Images as real directories: with real mappings, links, pipes and sockets.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::image::{Image, Node};

pub(super) fn write(image: &Image, dir: &Path) {
    for (name, node) in image.nodes() {
        let path = dir.join(name);
        match node {
            Node::File(_) => fs::write(path, image.file(name).unwrap()).unwrap(),
            Node::Directory => fs::create_dir(path).unwrap(),
            Node::Link(to) => symlink(to, path).unwrap(),
            Node::Pipe => mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap(),
            Node::Socket => {
                // The path of a socket must be short.
                let short = dir.join("socket");
                drop(UnixListener::bind(&short).unwrap());
                fs::rename(short, path).unwrap();
            }
        }
    }
}
