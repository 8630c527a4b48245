"""The mutants of `mutants.toml`, and the search for the code that each one changes.

An edit names a function or a constant, and quotes code of it. The name and the quote have to match in one place of all sources.
The file, comments, white space between tokens, and the code around the quote are not part of a match, so they may change.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MUTANTS = Path(__file__).with_name("mutants.toml")
#: The test target of most tests.
TARGET = "it"

COMMENT = r"(?P<comment>//[^\n]*|/\*.*?\*/)"
LITERAL = r"""\b[bc]?r(?P<hashes>#*)".*?"(?P=hashes)|"(?:\\.|[^"\\])*"|'(?:\\.[^'\n]*|[^\\'\n])'"""
NO_CODE = re.compile(f"{COMMENT}|{LITERAL}", re.DOTALL)
BLOCK = r"^ *(?:pub(?:\([\w ]+\))? |unsafe )*(?:impl|trait)\b(?P<head>[^{;]*)\{"
ITEM = re.compile(rf"{BLOCK}|\b(?:fn|const|static)\s+(?P<name>[A-Za-z_]\w*)\s*[(<:]", re.MULTILINE)
TOKEN = re.compile(r"\w+|[^\w\s]")


class EditError(Exception):
    """An edit whose code is in no place, or in several."""


@dataclass(frozen=True)
class Edit:
    """Code of one item, and the code that replaces it."""

    item: str
    old: str
    new: str

    @classmethod
    def read(cls, table: dict[str, Any]) -> Edit:
        """Reads `remove`, or `replace` and `with`."""
        if "remove" in table:
            return cls(table["item"], table["remove"].strip(), "")
        return cls(table["item"], table["replace"].strip(), table["with"].strip())

    def places(self, code: str, start: int, end: int) -> list[tuple[int, int]]:
        """Returns where the tokens of the old code follow each other between two offsets."""
        tokens = list(TOKEN.finditer(code, start, end))
        texts, wanted = [token[0] for token in tokens], TOKEN.findall(self.old)
        starts = range(len(texts) - len(wanted) + 1)
        return [
            (tokens[at].start(), tokens[at + len(wanted) - 1].end()) for at in starts if texts[at : at + len(wanted)] == wanted
        ]


@dataclass(frozen=True)
class Mutant:
    """A store without one step or check, and the tests of which one has to fail."""

    name: str
    gone: str
    target: str
    tests: list[str]
    edits: list[Edit]

    @classmethod
    def read(cls, name: str, table: dict[str, Any]) -> Mutant:
        """Reads one table of `mutants.toml`."""
        edits = [Edit.read(edit) for edit in table.get("edits", [table])]
        return cls(name, table["gone"], table.get("target", TARGET), table["tests"], edits)


def read_mutants(path: Path = MUTANTS) -> list[Mutant]:
    """Reads all mutants, in the order of the file."""
    return [Mutant.read(name, table) for name, table in tomllib.loads(path.read_text()).items()]


class Sources:
    """The Rust files of a folder, with an index of their functions and constants."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.texts = {path: path.read_text() for path in sorted(folder.rglob("*.rs"))}
        self.codes = {path: NO_CODE.sub(blank_comment, text) for path, text in self.texts.items()}
        self.items: dict[str, list[tuple[Path, int, int]]] = defaultdict(list)
        for path, text in self.texts.items():
            for name, start, end in find_items(NO_CODE.sub(blank, text)):
                self.items[name].append((path, start, end))

    def find(self, edit: Edit) -> tuple[Path, int, int]:
        """Returns the one place of the code that the edit replaces."""
        if edit.item not in self.items:
            raise EditError(f"no item has the name {edit.item}")
        places = [
            (path, *place) for path, start, end in self.items[edit.item] for place in edit.places(self.codes[path], start, end)
        ]
        if len(places) != 1:
            raise EditError(f"{len(places) or 'no'} places of {edit.item} match: {edit.old}")
        return places[0]

    def apply(self, mutant: Mutant) -> dict[Path, str]:
        """Returns the new text of each file that the mutant changes; writes nothing."""
        changed: dict[Path, str] = {}
        # The last place comes first, so that the others keep their offsets.
        for (path, start, end), new in sorted(((self.find(edit), edit.new) for edit in mutant.edits), reverse=True):
            text = changed.get(path, self.texts[path])
            changed[path] = text[:start] + new + text[end:]
        return changed

    def read_item(self, item: str) -> list[str]:
        """Returns the tokens of each function or constant of this name."""
        return [" ".join(TOKEN.findall(self.codes[path], start, end)) for path, start, end in self.items.get(item, [])]

    def read_tests(self, filters: list[str]) -> list[str]:
        """Returns the tokens of each function that the filters of `cargo test` select, if this is the folder of a test target."""
        selected = {item for wanted in filters for item in self.select(wanted)}
        return [code for item in sorted(selected) for code in self.read_item(item)]

    def select(self, wanted: str) -> set[str]:
        """Returns the functions that a filter of `cargo test` selects, if this is the folder of a test target."""
        modules = {path: "::".join(path.relative_to(self.folder).with_suffix("").parts) for path in self.texts}
        return {item for item, places in self.items.items() if any(wanted in f"{modules[path]}::{item}" for path, _, _ in places)}

    def check(self, mutants: list[Mutant]) -> list[str]:
        """Returns a line for each mutant that does not apply."""
        lines = []
        for mutant in mutants:
            try:
                self.apply(mutant)
            except EditError as cause:
                lines.append(f"{mutant.name}: {cause}")
        return lines


def fingerprint(mutant: Mutant, sources: Sources, tests: Sources) -> str:
    """Returns a digest of the edits, of the items that they change, and of the tests. Comments and layout are not part of it."""
    parts = [mutant.target, *mutant.tests, *tests.read_tests(mutant.tests)]
    for edit in mutant.edits:
        parts += [edit.item, edit.old, edit.new, *sources.read_item(edit.item)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def blank(found: re.Match[str]) -> str:
    """Returns as many spaces and line breaks as the match has."""
    return re.sub(r"[^\n]", " ", found[0])


def blank_comment(found: re.Match[str]) -> str:
    """Returns the same for a comment, and a literal as it is."""
    return blank(found) if found["comment"] else found[0]


def find_items(code: str) -> list[tuple[str, int, int]]:
    """Returns the name, the start and the end of each function and constant; in an impl or a trait, `Type::name`."""
    blocks: list[tuple[str, int]] = []
    items = []
    for item in ITEM.finditer(code):
        blocks = [block for block in blocks if item.start() < block[1]]
        if item["name"] is None:
            blocks.append((self_type(item["head"]), end_of(code, item.end() - 1)))
        else:
            owner = f"{blocks[-1][0]}::" if blocks else ""
            items.append((owner + item["name"], item.start(), end_of(code, item.start())))
    return items


def self_type(head: str) -> str:
    """Returns the name of the type that an impl is for, or of the trait."""
    head = head.replace("->", "")
    while (rest := re.sub(r"<[^<>]*>", " ", head)) != head:
        head = rest
    path: str = re.split(r"\bwhere\b|(?<!:):(?!:)", re.split(r"\bfor\b", head)[-1])[0]
    return path.split("::")[-1].strip()


def end_of(code: str, start: int) -> int:
    """Returns where the item ends: at its closing brace, or at a semicolon outside of brackets."""
    depth = 0
    for mark in re.compile(r"[][(){};]").finditer(code, start):
        depth += (mark[0] in "([{") - (mark[0] in ")]}")
        if depth == 0 and mark[0] in "};":
            return mark.end()
    return len(code)
