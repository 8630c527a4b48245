"""Unpacks an archive of stores: `python unpack.py ARCHIVE FOLDER`.

`TarFile.extractall(filter="data")` came with Python 3.11.4; every 3.11 has to do. So what may be unpacked is checked here.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
from pathlib import Path, PurePosixPath


def unpack(archive: Path, folder: Path) -> None:
    """Writes the files of an archive below a folder. Refuses an archive that names a place outside of it, a link or a device."""
    with tarfile.open(archive) as members:
        for member in members:
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts:
                raise tarfile.TarError(f"{archive}: {member.name!r} is outside of the folder: unpack it by hand")
            if not (member.isfile() or member.isdir()):
                raise tarfile.TarError(f"{archive}: {member.name!r} is neither a file nor a directory: unpack it by hand")
            path = folder / name
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            source = members.extractfile(member)
            assert source is not None
            with source, path.open("xb") as file:
                shutil.copyfileobj(source, file)


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
