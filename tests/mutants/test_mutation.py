"""A mutant follows its code to another place, and is reported when its code is gone or is in two places."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutation import Edit, Mutant, Sources

LOG = """
impl<T: Fn() -> u8> Seal for Log<T> {
    /// Adds { a record.
    fn append(&self, len: usize) -> [u8; 4] {
        // Before the write.
        self.check(len, "{ not // a comment")?; // and this goes
        self.write(len)
    }
}

fn append() {
    check('"');
}
"""


def sources(folder: Path, **files: str) -> Sources:
    """Writes the files, each into a folder of its own."""
    for name, text in files.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "code.rs").write_text(text)
    return Sources(folder)


def mutant(item: str, old: str, new: str = "") -> Mutant:
    return Mutant("early", "A check is missing.", "it", [], [Edit(item, old, new)])


def test_a_mutant_changes_only_the_code_that_it_quotes(tmp_path: Path) -> None:
    changed = sources(tmp_path, log=LOG).apply(mutant("Log::append", 'self.check(len, "{ not // a comment")?;', "true;"))
    assert list(changed.values()) == [LOG.replace('self.check(len, "{ not // a comment")?;', "true;")]


def test_all_edits_of_a_mutant_are_made(tmp_path: Path) -> None:
    edits = [
        Edit("Log::append", "self.write(len)", "w()"),
        Edit("append", "check('\"');", ""),
        Edit("Log::append", "len: usize", "_: u64"),
    ]
    changed = sources(tmp_path, log=LOG).apply(Mutant("early", "", "it", [], edits))
    expected = LOG.replace("self.write(len)", "w()").replace("check('\"');", "").replace("len: usize", "_: u64")
    assert list(changed.values()) == [expected]


def test_a_mutant_applies_after_a_move_and_in_another_layout(tmp_path: Path) -> None:
    moved = "impl Log {\n  fn append(&self) {\n    self.check(\n      len, // why\n    )?;\n  }\n}\n"
    found = sources(tmp_path, log="fn append() {}\n", store=moved)
    assert not found.check([mutant("Log::append", "self.check(len,)?;")])


def test_a_mutant_whose_code_is_gone_is_reported(tmp_path: Path) -> None:
    found = sources(tmp_path, log=LOG)
    assert found.check([mutant("Log::append", "check(size)")]) == ["early: no places of Log::append match: check(size)"]
    assert found.check([mutant("Log::put", "self.write(len)")]) == ["early: no item has the name Log::put"]


@pytest.mark.parametrize("comment", ["// self.seal();", "/* self.seal(); */"])
def test_code_in_a_comment_does_not_match(tmp_path: Path, comment: str) -> None:
    found = sources(tmp_path, log=f"fn close() {{\n    {comment}\n}}\n")
    assert found.check([mutant("close", "self.seal();")]) == ["early: no places of close match: self.seal();"]


def test_code_of_another_item_does_not_match(tmp_path: Path) -> None:
    assert sources(tmp_path, log=LOG).check([mutant("append", "self.write(len)")])


@pytest.mark.parametrize("second", ["impl Log { fn append() { self.write(len) } }", LOG])
def test_a_mutant_with_two_places_is_reported(tmp_path: Path, second: str) -> None:
    found = sources(tmp_path, log=LOG, store=second)
    assert found.check([mutant("Log::append", "self.write(len)")]) == ["early: 2 places of Log::append match: self.write(len)"]


def test_a_mutant_that_matches_twice_in_an_item_is_reported(tmp_path: Path) -> None:
    found = sources(tmp_path, log="const SIZE: usize = 4 + 4;\n")
    assert found.check([mutant("SIZE", "4")]) == ["early: 2 places of SIZE match: 4"]
