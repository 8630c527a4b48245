"""Small file systems that can be filled, shut down and broken. Their files have no names, so they end with this process."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

CLONE_NEWNS = 0x20000
MS_REC_PRIVATE = 0x4000 | 0x40000
LOOP_CTL_GET_FREE = 0x4C82
LOOP_CONFIGURE = 0x4C0A
LO_FLAGS_AUTOCLEAR = 4
#: Reads and writes bypass the page cache.
LO_FLAGS_DIRECT_IO = 16
#: The position of the flags in `struct loop_config`, which has 304 bytes.
LOOP_FLAGS_AT = 8 + 5 * 8 + 3 * 4
#: One number for both: `EXT4_IOC_SHUTDOWN` and `XFS_IOC_GOINGDOWN`.
SHUTDOWN = 0x8004587D
#: Everything in memory only is lost: data, names, and the file system's own log.
LOSE_ALL = 2
#: The file system's own log is written first: names and lengths stay, data is lost.
KEEP_NAMES = 1


def enter_own_mounts() -> None:
    """Skips the test where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        pytest.skip(f"may not mount: {os.strerror(ctypes.get_errno())}")
    if libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC_PRIVATE), None) != 0:
        pytest.skip(f"may not mount: {os.strerror(ctypes.get_errno())}")


def program(name: str) -> str:
    """The path of a program in the sbin directories, which are not on every PATH."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} is missing")
    return found


def umount(path: Path) -> None:
    """Unmounts `path`. Waits for processes that are just ending."""
    deadline = time.monotonic() + 60
    while True:
        done = subprocess.run(["umount", path], capture_output=True, text=True)
        if done.returncode == 0:
            return
        if time.monotonic() > deadline:
            raise OSError(done.stderr.strip())
        time.sleep(0.005)


class Disk:
    """A loop device over `backing`, which it owns from now on. It lasts as long as this process."""

    def __init__(self, backing: int, flags: int = 0) -> None:
        try:
            with open("/dev/loop-control") as control:
                number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
            self.device = f"/dev/loop{number}"
            self.fd = os.open(self.device, os.O_RDWR | os.O_CLOEXEC)
            config = bytearray(304)
            struct.pack_into("=I", config, 0, backing)
            struct.pack_into("=I", config, LOOP_FLAGS_AT, LO_FLAGS_AUTOCLEAR | flags)
            fcntl.ioctl(self.fd, LOOP_CONFIGURE, config)
        except OSError as error:
            pytest.skip(f"no loop device: {error}")
        finally:
            os.close(backing)

    def close(self) -> None:
        os.close(self.fd)


class FileSystem:
    """A file system on a disk, mounted at `path` or not."""

    def __init__(self, disk: Disk, kind: str, path: Path, options: tuple[str, ...] = ()) -> None:
        self.disk, self.kind, self.path, self.options = disk, kind, path, options
        self.make()
        path.mkdir(exist_ok=True)
        self.mount()

    def make(self) -> None:
        flags = ["-q", "-F", "-m", "0"] if self.kind == "ext4" else ["-q", "-f"]
        subprocess.run([program(f"mkfs.{self.kind}"), *flags, self.disk.device], stdout=subprocess.DEVNULL, check=True)

    def mount(self) -> None:
        options = ["-o", ",".join(self.options)] if self.options else []
        done = subprocess.run(["mount", "-t", self.kind, *options, self.disk.device, self.path], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"cannot mount {self.kind}: {done.stderr.strip()}")

    def umount(self) -> None:
        umount(self.path)

    def shut_down(self, how: int = LOSE_ALL) -> None:
        """Simulates a power cut: nothing reaches the disk from now on."""
        root = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(root, SHUTDOWN, struct.pack("=I", how))
        finally:
            os.close(root)

    def close(self) -> None:
        with suppress(OSError):
            self.umount()
        self.disk.close()

    def free(self) -> int:
        """Bytes that are free for files."""
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize


def memory(size: int) -> int:
    """A file without a name."""
    fd = os.memfd_create("disk")
    os.truncate(fd, size)
    return fd


@contextmanager
def file_system(kind: str, size: int, path: Path, *options: str) -> Iterator[FileSystem]:
    """A new file system in memory, mounted."""
    disk = Disk(memory(size))
    system = FileSystem(disk, kind, path, options)
    try:
        yield system
    finally:
        system.close()


class Pluggable:
    """ext4 on a disk that can be pulled out: it lies in a file of another file system, which is shut down."""

    def __init__(self, size: int, place: Path) -> None:
        self.outer = FileSystem(Disk(memory(2 * size)), "ext4", place / "outer")
        self.image = self.outer.path / "disk"
        with self.image.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
        self.inner = FileSystem(self._disk(), "ext4", place / "ext4", ("errors=continue",))

    def _disk(self) -> Disk:
        return Disk(os.open(self.image, os.O_RDWR | os.O_CLOEXEC), LO_FLAGS_DIRECT_IO)

    def pull(self) -> None:
        """From now on every read and write of the disk fails; what memory holds can still be read."""
        self.outer.shut_down()

    def plug(self) -> None:
        """Plugs the disk in and mounts it again."""
        self.inner.close()
        self.outer.umount()
        self.outer.mount()
        self.inner.disk = self._disk()
        self.inner.mount()

    def close(self) -> None:
        self.inner.close()
        self.outer.close()


@contextmanager
def pluggable(size: int, place: Path) -> Iterator[Pluggable]:
    """Returns true if the disk is plugged in."""
    disk = Pluggable(size, place)
    try:
        yield disk
    finally:
        disk.close()


def fill(path: Path) -> None:
    """Writes a file until the disk has no free block, and then gives it its name."""
    made = path.with_suffix(".made")
    with made.open("wb", buffering=0) as file:
        for piece in (1 << 20, 4096):
            with suppress(OSError):
                while file.write(b"x" * piece) == piece:
                    pass
    made.rename(path)


@contextmanager
def mounted(kind: str, path: Path, source: Path | str, *options: str) -> Iterator[Path]:
    """A mount that needs no disk: another file system, or a part of one, at `path`."""
    path.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-t", kind, "-o", ",".join(options), source, path], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount {kind}: {done.stderr.strip()}")
    try:
        yield path
    finally:
        umount(path)


@contextmanager
def overlay(lower: Path, place: Path) -> Iterator[Path]:
    """overlayfs over the directory `lower`, as over the image of a container: writes go to a directory in `place`."""
    upper, work = place / "upper", place / "work"
    for made in (upper, work):
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
    with mounted("overlay", place / "merged", "none", f"lowerdir={lower}", f"upperdir={upper}", f"workdir={work}") as path:
        yield path


@contextmanager
def tmpfs(path: Path, size: int) -> Iterator[Path]:
    """A tmpfs of at most this size."""
    with mounted("tmpfs", path, "none", f"size={size}"):
        yield path
