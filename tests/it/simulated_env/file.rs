//! An open file of the machine.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use mqstore::storage::{Access, Advice, File, Region, Step};

use super::SimulatedEnv;
use super::calls::{Call, Verdict};
use super::directory::Inode;

#[derive(Debug)]
pub(super) struct SimulatedFile {
    pub(super) env: SimulatedEnv,
    pub(super) inode: Inode,
    pub(super) path: PathBuf,
}

impl SimulatedFile {
    fn sync_bytes(&self, range: Range<usize>, step: Step) -> io::Result<()> {
        let verdict = self.env.judge(Call::Sync(step), &self.path);
        let mut disk = self.env.disk();
        let image = disk.file_mut(self.inode);
        match verdict {
            Verdict::Go | Verdict::Short => image.sync(range),
            Verdict::Nothing => {}
            Verdict::Fail(error) => {
                image.fail_sync(range);
                return Err(error);
            }
        }
        drop(disk);
        self.env.take_time(step);
        Ok(())
    }
}

impl File for SimulatedFile {
    fn len(&self) -> io::Result<u64> {
        self.env.admit(Call::Length, &self.path)?;
        Ok(self.env.disk().file(self.inode)?.len() as u64)
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let verdict = self.env.judge(Call::Read, &self.path);
        let disk = self.env.disk();
        let bytes = disk.file(self.inode)?.bytes();
        let rest = bytes.get(at as usize..).unwrap_or_default();
        let len = match verdict {
            Verdict::Fail(error) => return Err(error),
            Verdict::Short => rest.len().min(into.len()).div_ceil(2),
            Verdict::Go | Verdict::Nothing => rest.len().min(into.len()),
        };
        into[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    /// A write that fails has written a part.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let verdict = self.env.judge(Call::Write, &self.path);
        let part = bytes.len().div_ceil(2);
        let len = match verdict {
            Verdict::Go | Verdict::Nothing => bytes.len(),
            Verdict::Short | Verdict::Fail(_) => part,
        };
        self.env.disk().file_mut(self.inode).write(at as usize, &bytes[..len]);
        match verdict {
            Verdict::Fail(error) => Err(error),
            _ => Ok(len),
        }
    }

    fn sync(&self, step: Step) -> io::Result<()> {
        self.sync_bytes(0..usize::MAX, step)
    }

    fn sync_range(&self, range: Range<u64>, step: Step) -> io::Result<()> {
        self.sync_bytes(range.start as usize..range.end as usize, step)
    }

    /// An allocation that fails has grown the file by a part, as on ext4.
    fn allocate(&self, len: u64) -> io::Result<()> {
        let verdict = self.env.judge(Call::Allocate, &self.path);
        let mut disk = self.env.disk();
        let image = disk.file_mut(self.inode);
        if let Verdict::Fail(error) = verdict {
            image.grow(len as usize / 2);
            return Err(error);
        }
        image.grow(len as usize);
        Ok(())
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        self.env.admit(Call::Zero, &self.path)?;
        let mut disk = self.env.disk();
        let image = disk.file_mut(self.inode);
        if range.end > image.len() as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        image.write(range.start as usize, &vec![0; (range.end - range.start) as usize]);
        Ok(())
    }

    fn advise(&self, _range: Range<u64>, _advice: Advice) -> io::Result<()> {
        Ok(())
    }

    fn map(&self, len: usize, _access: Access) -> io::Result<Region> {
        self.env.admit(Call::Map, &self.path)?;
        let mut disk = self.env.disk();
        disk.file_mut(self.inode).map(len).ok_or(io::ErrorKind::InvalidInput.into())
    }
}
