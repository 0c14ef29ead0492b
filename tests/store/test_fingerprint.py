"""What cached things depend on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anymetal.store.fingerprint import TABLE, file_digest, fingerprint, forget, stamp, unchanged


@pytest.fixture(autouse=True)
def look_again() -> Iterator[None]:
    forget()
    yield
    forget()


def test_stamp_changes_with_a_file(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    header = tmp_path / "room" / "metal_math"
    header.write_text("1")
    before = stamp(tmp_path)
    header.write_text("22")
    changed = stamp(tmp_path)
    (tmp_path / "room" / "__pycache__").mkdir()
    (tmp_path / "room" / "__pycache__" / "x.pyc").write_text("")
    assert before != changed == stamp(tmp_path)


def test_content_of_a_folder_counts_and_its_times_do_not(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("1")
    before = fingerprint(tmp_path)
    (tmp_path / "a.h").touch()
    forget()
    assert fingerprint(tmp_path) == before
    (tmp_path / "a.h").rename(tmp_path / "b.h")
    forget()
    assert fingerprint(tmp_path) != before


@pytest.mark.parametrize("name", TABLE)
def test_row_changes_the_fingerprint(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(*TABLE)
    forget()
    monkeypatch.setitem(TABLE, name, lambda: "another")
    assert fingerprint(*TABLE) != before


def test_changed_and_missing_files_are_noticed(tmp_path: Path) -> None:
    header = tmp_path / "a.h"
    header.write_text("1")
    files = [(str(header), str(file_digest(header)))]
    assert unchanged(files)
    header.write_text("2")
    assert not unchanged(files)
    header.unlink()
    assert not unchanged(files)
