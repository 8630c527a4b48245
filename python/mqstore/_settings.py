"""Missing files of `config` that a broker writes."""

from __future__ import annotations

from pathlib import Path

import mqstore

#: Files of a broker, each with others that it writes at the same time: if these exist, the file has existed, too. A store that no
#: broker has written has the topics, and the offsets of groups only once it has groups.
_WRITTEN_WITH = {
    "topics.json": ("consumerOffset.json", "delayOffset.json"),
    "consumerOffset.json": ("topics.json", "subscriptionGroup.json"),
    "delayOffset.json": ("topics.json",),
}


def why_missing(store: mqstore.Store, name: str) -> str | None:
    """Returns the reason for a missing file of `config`; None if it is there, or if no broker has written the store."""
    config = Path(store.path, "config")
    if (config / name).exists() or (config / f"{name}.bak").exists():
        return None
    if aside := max(Path(store.path).glob(f"mqstore-backup-*/config/{name}"), default=None):
        return f"a repair has set the damaged {name} aside: {aside}"
    others = _WRITTEN_WITH.get(name, ())
    return f"{name} is missing" if others and all((config / other).exists() for other in others) else None


def missing_settings(store: mqstore.Store) -> dict[str, str]:
    """Returns the names of all missing files, each with the reason."""
    names = {*_WRITTEN_WITH, *(file.name for file in Path(store.path).glob("mqstore-backup-*/config/*.json"))}
    return {name: why for name in sorted(names) if (why := why_missing(store, name)) is not None}
