//! Damage aimed at fields: as a bad disk, a crash, a broken copy or an attacker leaves it.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use mqstore::format::segment_name;

use super::draw::Draw;
use super::fields::{Family, Field, fields, is_number, number, slots_of};
use super::image::{Image, Node};

/// An intact store, and an older copy of it or of another one.
pub(super) struct Base {
    pub(super) name: &'static str,
    pub(super) image: Image,
    pub(super) older: Image,
}

/// One damage: its kind, to be counted, and where and how.
pub(super) struct Done {
    pub(super) kind: &'static str,
    pub(super) what: String,
}

type Damage = fn(&mut Draw, &mut Image, &Base, &Path) -> Option<String>;

/// Damages of one file, with their weights.
const DAMAGES: [(&str, usize, Damage); 15] = [
    ("field", 24, change_field),
    ("bit", 8, flip_bit),
    ("bytes", 4, overwrite_bytes),
    ("blocks swapped", 4, swap_blocks),
    ("block doubled", 4, double_block),
    ("block zeroed", 4, zero_block),
    ("block stale", 6, stale_block),
    ("cut", 6, cut),
    ("torn", 6, tear),
    ("extended", 3, extend),
    ("renamed", 3, rename),
    ("doubled", 3, double),
    ("exchanged", 2, exchange),
    ("stale", 2, stale),
    ("removed", 2, remove),
];

/// A copy of the store with one to three damages.
pub(super) fn mutate(draw: &mut Draw, base: &Base) -> (Image, Vec<Done>) {
    let mut image = base.image.clone();
    let mut all = Vec::new();
    for _ in 0..=draw.below(3) {
        let (kind, what) = match draw.below(20) {
            0 => ("odd name", Some(odd_name(draw, &mut image))),
            1 => ("odd kind", odd_kind(draw, &mut image)),
            2 => ("sizes", Some(other_sizes(draw, &mut image))),
            3 | 4 => ("chain", cross_links(draw, &mut image)),
            5 => ("entries", cross_entries(draw, &mut image)),
            _ => damage_a_file(draw, &mut image, base),
        };
        all.extend(what.map(|what| Done { kind, what }));
    }
    let abort = Path::new("abort");
    match draw.below(4) {
        0 => image.put_file(abort, Vec::new()),
        1 => image.remove(abort),
        _ => {}
    }
    (image, all)
}

fn damage_a_file(draw: &mut Draw, image: &mut Image, base: &Base) -> (&'static str, Option<String>) {
    let Some(path) = any_file(draw, image) else {
        return ("removed", None);
    };
    let mut at = draw.below(DAMAGES.iter().map(|(_, weight, _)| weight).sum());
    for (kind, weight, damage) in DAMAGES {
        if at < weight {
            let what = damage(draw, image, base, &path);
            return (kind, what.map(|what| format!("{}: {what}", path.display())));
        }
        at -= weight;
    }
    unreachable!("a draw below the sum of the weights")
}

/// A file of any family, so that a store of many queue files has its log damaged as often.
fn any_file(draw: &mut Draw, image: &Image) -> Option<PathBuf> {
    let wanted = *draw.one(&[
        Family::Log,
        Family::Log,
        Family::Queue,
        Family::Queue,
        Family::Index,
        Family::Index,
        Family::BatchQueue,
        Family::Checkpoint,
        Family::Other,
    ]);
    file_of(draw, image, wanted).or_else(|| file_of(draw, image, Family::Log))
}

fn file_of(draw: &mut Draw, image: &Image, family: Family) -> Option<PathBuf> {
    let files: Vec<&Path> = image.files().map(|(path, _)| path).collect();
    let files: Vec<&Path> = files.into_iter().filter(|path| Family::of(path) == family).collect();
    (!files.is_empty()).then(|| (*draw.one(&files)).to_owned())
}

/// Bytes up to the last that is not zero: damage after them says little.
fn written(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1)
}

fn change_field(draw: &mut Draw, image: &mut Image, _base: &Base, path: &Path) -> Option<String> {
    let bytes = image.file(path)?;
    let end = if draw.once_in(8) { bytes.len() } else { written(bytes) };
    let mut numbers = fields(path, bytes);
    numbers.retain(|field| is_number(field) && field.at < end);
    if numbers.is_empty() {
        return None;
    }
    let Field { name, at, width } = draw.one(&numbers).clone();
    let value = hostile(draw, number(bytes, at, width), width);
    image.edit(path, |bytes| {
        bytes[at..at + width].copy_from_slice(&value.to_be_bytes()[8 - width..]);
    });
    Some(format!("{name} at {at} becomes {value}"))
}

/// An unusual value of `width` bytes.
fn hostile(draw: &mut Draw, old: i64, width: usize) -> i64 {
    let largest = i64::MAX >> (64 - 8 * width);
    let (bit, noise) = (draw.below(8 * width), draw.next() as i64);
    *draw.one(&[
        0,
        1,
        -1,
        largest,
        !largest,
        old.wrapping_add(1),
        old.wrapping_sub(1),
        old.wrapping_neg(),
        old ^ 1 << bit,
        largest / 20,
        largest / 20 + 1,
        noise,
    ])
}

fn flip_bit(draw: &mut Draw, image: &mut Image, _base: &Base, path: &Path) -> Option<String> {
    image.edit(path, |bytes| {
        let (at, bit) = (draw.below(written(bytes)), draw.below(8));
        *bytes.get_mut(at)? ^= 1 << bit;
        Some(format!("bit {bit} of byte {at}"))
    })
}

fn overwrite_bytes(draw: &mut Draw, image: &mut Image, _base: &Base, path: &Path) -> Option<String> {
    image.edit(path, |bytes| {
        let at = draw.below(written(bytes));
        let len = (1 + draw.below(100)).min(bytes.len().checked_sub(at)?);
        bytes[at..at + len].fill_with(|| draw.next() as u8);
        Some(format!("{len} bytes at {at} become noise"))
    })
}

/// A block of an entry, a sector or a page in the written part of a file.
fn block(draw: &mut Draw, bytes: &[u8]) -> Option<Range<usize>> {
    let size = *draw.one(&[20, 512, 4096]);
    let start = draw.below(written(bytes).div_ceil(size)) * size;
    (start + size <= bytes.len()).then_some(start..start + size)
}

/// Returns the start of another block of this size.
fn another(draw: &mut Draw, bytes: &[u8], size: usize) -> usize {
    draw.below(bytes.len() / size) * size
}

fn swap_blocks(draw: &mut Draw, image: &mut Image, _base: &Base, path: &Path) -> Option<String> {
    image.edit(path, |bytes| {
        let one = block(draw, bytes)?;
        let other = another(draw, bytes, one.len());
        for n in 0..one.len() {
            bytes.swap(one.start + n, other + n);
        }
        Some(format!("{one:?} and {other} change places"))
    })
}

fn double_block(draw: &mut Draw, image: &mut Image, _base: &Base, path: &Path) -> Option<String> {
    image.edit(path, |bytes| {
        let one = block(draw, bytes)?;
        let other = another(draw, bytes, one.len());
        bytes.copy_within(one.clone(), other);
        Some(format!("{one:?} is copied to {other}"))
    })
}

fn zero_block(draw: &mut Draw, image: &mut Image, _base: &Base, path: &Path) -> Option<String> {
    image.edit(path, |bytes| {
        let one = block(draw, bytes)?;
        bytes[one.clone()].fill(0);
        Some(format!("{one:?} become zero"))
    })
}

fn stale_block(draw: &mut Draw, image: &mut Image, base: &Base, path: &Path) -> Option<String> {
    let older = base.older.file(path)?;
    image.edit(path, |bytes| {
        let one = block(draw, bytes)?;
        bytes[one.clone()].copy_from_slice(older.get(one.clone())?);
        Some(format!("{one:?} become as they once were"))
    })
}

/// A place where something starts or ends, or a byte beside it.
fn boundary(draw: &mut Draw, path: &Path, bytes: &[u8]) -> usize {
    let mut places: Vec<usize> = fields(path, bytes).iter().map(|field| field.at).collect();
    let end = written(bytes);
    places.retain(|at| *at <= end);
    let pages = (0..bytes.len()).step_by(4096);
    places.extend(pages.chain([bytes.len(), bytes.len() / 2]));
    let at = *draw.one(&places) + draw.below(3);
    at.saturating_sub(1).min(bytes.len())
}

fn cut(draw: &mut Draw, image: &mut Image, _base: &Base, path: &Path) -> Option<String> {
    image.edit(path, |bytes| {
        let at = boundary(draw, path, bytes);
        bytes.truncate(at);
        Some(format!("cut to {at} bytes"))
    })
}

/// Zeros from some place on, to the end or as far as a few sectors reach.
fn tear(draw: &mut Draw, image: &mut Image, _base: &Base, path: &Path) -> Option<String> {
    image.edit(path, |bytes| {
        let at = boundary(draw, path, bytes);
        let end = if draw.once_in(2) {
            bytes.len()
        } else {
            bytes.len().min((at / 512 + 1 + draw.below(4)) * 512)
        };
        bytes[at..end].fill(0);
        Some(format!("zeros from {at} to {end}"))
    })
}

fn extend(draw: &mut Draw, image: &mut Image, _base: &Base, path: &Path) -> Option<String> {
    image.edit(path, |bytes| {
        let by = *draw.one(&[1, 7, 8, 19, 20, 21, 4095, 4096, bytes.len(), 1 << 20]);
        let with = *draw.one(&[0, 0, 0xFF, 0xDA]);
        bytes.resize(bytes.len() + by, with);
        Some(format!("extended by {by} bytes of {with:#x}"))
    })
}

/// The name of another segment or queue file, there or not.
fn other_name(draw: &mut Draw, image: &Image, path: &Path) -> PathBuf {
    let size = image.file(path).map_or(0, <[u8]>::len) as u64;
    let starts = [
        0,
        20,
        1000,
        size,
        size * draw.below(20) as u64,
        size + 1,
        1 << 40,
        i64::MAX as u64,
        i64::MAX as u64 - i64::MAX as u64 % size.max(1),
        u64::MAX - 999,
        draw.next() >> 40,
    ];
    path.with_file_name(segment_name(*draw.one(&starts)))
}

#[expect(clippy::unnecessary_wraps, reason = "a damage like the others")]
fn rename(draw: &mut Draw, image: &mut Image, _base: &Base, path: &Path) -> Option<String> {
    let to = other_name(draw, image, path);
    image.rename(path, &to);
    Some(format!("renamed to {}", to.display()))
}

fn double(draw: &mut Draw, image: &mut Image, _base: &Base, path: &Path) -> Option<String> {
    let to = other_name(draw, image, path);
    let bytes = image.file(path)?.to_vec();
    image.put_file(&to, bytes);
    Some(format!("copied to {}", to.display()))
}

fn exchange(draw: &mut Draw, image: &mut Image, _base: &Base, path: &Path) -> Option<String> {
    let other = file_of(draw, image, Family::of(path))?;
    let (ours, theirs) = (image.file(path)?.to_vec(), image.file(&other)?.to_vec());
    image.put_file(path, theirs);
    image.put_file(&other, ours);
    Some(format!("changes places with {}", other.display()))
}

fn stale(_draw: &mut Draw, image: &mut Image, base: &Base, path: &Path) -> Option<String> {
    image.put_file(path, base.older.file(path)?.to_vec());
    Some("becomes as it once was".to_owned())
}

#[expect(clippy::unnecessary_wraps, reason = "a damage like the others")]
fn remove(draw: &mut Draw, image: &mut Image, _base: &Base, path: &Path) -> Option<String> {
    let above: Vec<&Path> = path.ancestors().filter(|path| path.iter().next().is_some()).collect();
    let gone = if draw.once_in(4) { *draw.one(&above) } else { path };
    image.remove(gone);
    Some(format!("{} is removed", gone.display()))
}

/// Links of an index chain that lead to themselves, to each other, forward, backward and out of the file.
fn cross_links(draw: &mut Draw, image: &mut Image) -> Option<String> {
    let path = file_of(draw, image, Family::Index)?;
    image.edit(&path, |bytes| {
        let items = 40 + 4 * slots_of(bytes.len());
        let count = i32::try_from(number(bytes.get(..40)?, 36, 4)).ok()?;
        let count = count.min(((bytes.len().checked_sub(items)?) / 20) as i32);
        let drawn = [0; 2].map(|_: i32| 1 + draw.below(count.max(2) as usize - 1) as i32);
        let [one, other] = drawn;
        let mut link = |at: usize, to: i32| {
            if let Some(field) = bytes.get_mut(at..at + 4) {
                field.copy_from_slice(&to.to_be_bytes());
            }
        };
        let previous = |number: i32| items + number as usize * 20 + 16;
        let newest = 40 + 4 * draw.below((items - 40) / 4);
        let what = match draw.below(6) {
            0 => {
                link(previous(one), one);
                "itself"
            }
            1 => {
                link(previous(one), other);
                link(previous(other), one);
                "each other"
            }
            2 => {
                link(previous(one), *draw.one(&[count, count + 1, i32::MAX, i32::MIN, -1]));
                "outside"
            }
            3 => {
                link(previous(one), 0);
                "nothing"
            }
            4 => {
                link(newest, *draw.one(&[0, one, count, count + 1, i32::MAX, -1]));
                "something else, from a slot"
            }
            _ => {
                link(previous(one), other);
                "another item"
            }
        };
        Some(format!("{}: items {one} and {other}: a link to {what}", path.display()))
    })
}

/// Queue entries that name each other's messages.
fn cross_entries(draw: &mut Draw, image: &mut Image) -> Option<String> {
    let path = file_of(draw, image, Family::Queue)?;
    let from = file_of(draw, image, Family::Queue)?;
    let theirs = image.file(&from)?.to_vec();
    image.edit(&path, |bytes| {
        let at = draw.below(written(bytes) / 20 + 1) * 20;
        let other = draw.below(written(&theirs) / 20 + 1) * 20;
        let entry: [u8; 20] = *theirs.get(other..)?.first_chunk()?;
        let count = if draw.once_in(4) { bytes.len() / 20 } else { 1 };
        for place in bytes.get_mut(at..)?.chunks_exact_mut(20).take(count) {
            place.copy_from_slice(&entry);
        }
        Some(format!(
            "{}: {count} entries from byte {at} become that at {other} of {}",
            path.display(),
            from.display()
        ))
    })
}

/// Some place for a name: a directory of the store, or the store itself.
fn some_directory(draw: &mut Draw, image: &Image) -> PathBuf {
    let mut directories: Vec<&Path> = image.directories().collect();
    directories.push(Path::new(""));
    (*draw.one(&directories)).to_owned()
}

const ODD_NAMES: [&[u8]; 16] = [
    b"0",
    b"-1",
    b"1.5",
    b"2147483648",
    b"00000000000000000000.swp",
    b".00000000000000000000",
    b"99999999999999999999",
    b"0000000000000000000a",
    b"\xD9\xA0\xD9\xA0\xD9\xA0\xD9\xA0\xD9\xA0\xD9\xA0\xD9\xA0\xD9\xA0\xD9\xA0\xD9\xA0",
    b"\xFF\xFE",
    b"\x80bad\xC3\x28",
    b"line\nbreak",
    b"caf\xC3\xA9 \xE8\xAE\xA2\xE5\x8D\x95",
    b"abort",
    b"CURRENT",
    b"20261120195119755",
];

/// An unexpected file or directory.
fn odd_name(draw: &mut Draw, image: &mut Image) -> String {
    let name = *draw.one(&ODD_NAMES);
    let path = some_directory(draw, image).join(OsStr::from_bytes(name));
    if draw.once_in(3) {
        image.put(&path, Node::Directory);
    } else {
        let len = *draw.one(&[0, 1, 20, 4096]);
        image.put_file(&path, vec![*draw.one(&[0, 1, 0xFF]); len]);
    }
    format!("{} is new", path.display())
}

/// A link, a pipe, a socket or a directory in place of a file, or of a directory.
fn odd_kind(draw: &mut Draw, image: &mut Image) -> Option<String> {
    let mut path = any_file(draw, image)?;
    if draw.once_in(4) {
        let above: Vec<&Path> = path.ancestors().filter(|path| path.iter().next().is_some()).collect();
        path = (*draw.one(&above)).to_owned();
    }
    let target = any_file(draw, image)?;
    let up: PathBuf = path.iter().skip(1).map(|_| "..").collect();
    let own_name = PathBuf::from(path.file_name()?);
    let node = match draw.below(10) {
        0 | 1 => Node::Link(up.join(target)),
        2 => Node::Link(own_name),
        3 => Node::Link("nowhere".into()),
        4 => Node::Link(up.join(".")),
        5 => Node::Link(draw.one(&["/dev/zero", "/dev/null", "/proc/self/mem"]).into()),
        6 => Node::Pipe,
        7 => Node::Socket,
        _ => Node::Directory,
    };
    let what = format!("{} becomes {node:?}", path.display());
    image.put(&path, node);
    Some(what)
}

const SIZES: [&str; 14] = [
    "",
    "{}",
    "[]",
    "null",
    "{\"mapped_file_size_commit_log\": 0}",
    "{\"mapped_file_size_commit_log\": -1}",
    "{\"mapped_file_size_commit_log\": 18446744073709551615, \"mapped_file_size_consume_queue\": 18446744073709551615}",
    "{\"mapped_file_size_commit_log\": 1e400}",
    "{\"mapped_file_size_commit_log\": \"4096\"}",
    "{\"mapped_file_size_consume_queue\": 1}",
    "{\"mapped_file_size_consume_queue\": 19}",
    "{\"max_hash_slot_num\": 4294967296, \"max_index_num\": 4294967297}",
    "{\"max_hash_slot_num\": 0, \"max_index_num\": 0}",
    "{\"max_hash_slot_num\": 1, \"max_hash_slot_num\": 2147483647, \"max_index_num\": 2147483647}",
];

/// Other recorded sizes, or what is not a record of sizes.
fn other_sizes(draw: &mut Draw, image: &mut Image) -> String {
    let path = Path::new("config/mqstore.json");
    let text = match draw.below(4) {
        0 => "[".repeat(70_000),
        1 => {
            let (slots, items) = (draw.next() >> draw.below(64), draw.next() >> draw.below(64));
            format!("{{\"max_hash_slot_num\": {slots}, \"max_index_num\": {items}}}")
        }
        _ => (*draw.one(&SIZES)).to_owned(),
    };
    image.put_file(path, text.clone().into_bytes());
    format!("{} becomes {:.80}", path.display(), text)
}
