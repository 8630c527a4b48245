"""Archives of stores: what is unpacked, and what is refused."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from unpack import unpack

LINKS_AND_DEVICES = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)


def archive(folder: Path, *members: tuple[str, bytes, bytes]) -> Path:
    """An archive of members of these names, types and bytes."""
    path = folder / "archive.tar.xz"
    with tarfile.open(path, "w:xz") as file:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(content), "../secret"
            file.addfile(member, io.BytesIO(content))
    return path


def test_files_and_directories_are_unpacked(tmp_path: Path) -> None:
    made = archive(tmp_path, ("store", tarfile.DIRTYPE, b""), ("store/log/0", tarfile.REGTYPE, b"0" * 70_000))
    unpack(made, tmp_path / "here")
    assert [path.name for path in sorted((tmp_path / "here").rglob("*"))] == ["store", "log", "0"]
    assert (tmp_path / "here" / "store" / "log" / "0").read_bytes() == b"0" * 70_000


@pytest.mark.parametrize("name", ["/etc/mqstore", "../secret", "store/../../secret"])
def test_a_name_outside_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(tarfile.TarError, match="outside of the folder"):
        unpack(archive(tmp_path, (name, tarfile.REGTYPE, b"x")), tmp_path / "here")
    assert not (tmp_path / "secret").exists()


@pytest.mark.parametrize("kind", LINKS_AND_DEVICES)
def test_a_link_and_a_device_are_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(tarfile.TarError, match="neither a file nor a directory"):
        unpack(archive(tmp_path, ("store", kind, b"")), tmp_path / "here")
    assert not (tmp_path / "here" / "store").exists()
