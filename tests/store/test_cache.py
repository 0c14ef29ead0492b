"""The disk store: what goes in comes out, damage and other people's files do not."""

from __future__ import annotations

import multiprocessing
import os
import stat
import time
import warnings
from pathlib import Path

import pytest

from anymetal import settings
from anymetal.store import cache
from anymetal.store.cache import Store, default_store, digest_of, untrusted

KEY = digest_of("a key")
MEGABYTE = 1024 * 1024


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", MEGABYTE)


@pytest.fixture(autouse=True)
def forget_stores() -> None:
    cache._store.cache_clear()


def test_entry_comes_back(store: Store) -> None:
    store.put("executable", KEY, {"answer": 42}, b"\x00code")
    entry = store.get("executable", KEY)
    assert entry is not None
    assert (entry.note, entry.payload) == ({"answer": 42}, b"\x00code")


def test_absent_entry_is_none(store: Store) -> None:
    store.put("outline", KEY, {})
    assert store.get("executable", KEY) is None
    assert store.get("outline", digest_of("another")) is None


def test_digest_separates_its_parts() -> None:
    assert digest_of("ab", "c") != digest_of("a", "bc") != digest_of("abc")


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "foreign"])
def test_damaged_entry_is_dropped(store: Store, damage: str) -> None:
    store.put("executable", KEY, {"a": 1}, b"x" * 1000)
    path = store._path("executable", KEY)
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes({"flip": data, "cut": data[:300], "empty": b"", "foreign": b"#!" * 99}[damage])
    assert store.get("executable", KEY) is None
    assert not path.exists()
    store.put("executable", KEY, {"a": 2}, b"new")
    entry = store.get("executable", KEY)
    assert entry is not None and entry.payload == b"new"


def test_least_recently_used_entries_go_first(store: Store) -> None:
    keys = [digest_of(str(i)) for i in range(8)]
    for age, key in enumerate(keys):
        store.put("executable", key, {}, bytes(100_000))
        used = time.time() - 1000 + age
        os.utime(store._path("executable", key), (used, used))
    assert store.get("executable", keys[0]) is not None  # a use, which refreshes the oldest
    for number in range(4):
        store.put("executable", digest_of(f"new {number}"), {}, bytes(100_000))
    assert store.usage().size <= MEGABYTE
    assert store.get("executable", keys[0]) is not None
    assert store.get("executable", keys[1]) is None
    assert store.get("executable", digest_of("new 3")) is not None


def test_size_stays_bounded_over_many_entries(store: Store) -> None:
    for number in range(60):
        store.put("executable", digest_of(str(number)), {}, bytes(50_000))
        assert store.usage().size <= MEGABYTE


def test_other_processes_entries_count(tmp_path: Path) -> None:
    ours, theirs = (Store(tmp_path / "cache", MEGABYTE) for _ in range(2))
    for number in range(40):
        theirs.put("executable", digest_of("theirs", str(number)), {}, bytes(20_000))
        ours.put("executable", digest_of("ours", str(number)), {}, bytes(20_000))
    assert ours.usage().size <= 1.5 * MEGABYTE


def test_clear_removes_all_and_only_entries(store: Store) -> None:
    store.put("executable", KEY, {}, b"x")
    other = store.directory / "notes.txt"
    other.write_text("mine")
    assert store.clear().entries == 1
    assert store.usage().entries == 0
    assert other.exists()
    store.put("executable", KEY, {}, b"x")
    assert store.usage().entries == 1


def test_file_is_built_once(store: Store) -> None:
    built = []

    def build(path: Path) -> None:
        built.append(path)
        path.write_text("header")

    first = store.file("header", KEY, build)
    assert first.read_text() == "header"
    assert store.file("header", KEY, build) == first
    assert len(built) == 1


@pytest.mark.parametrize("damage", [b"", b"head", b"headex", b"header and more", None])
def test_file_that_is_not_as_it_was_built_is_built_again(
    store: Store, damage: bytes | None
) -> None:
    def build(path: Path) -> None:
        path.write_text("header")

    path = store.file("header", KEY, build)
    if damage is None:
        store._path("header-digest", KEY).unlink()
    else:
        path.write_bytes(damage)
    assert store.file("header", KEY, build).read_text() == "header"


def test_failed_build_leaves_nothing(store: Store) -> None:
    def build(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        store.file("header", KEY, build)
    assert not store._path("header", KEY).exists()
    assert list(store._path("header", KEY).parent.iterdir()) == []


def test_abandoned_temporary_file_is_removed(store: Store) -> None:
    store.put("executable", KEY, {}, b"x")
    left = store._path("executable", KEY).parent / ".anymetal-abandoned"
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    assert store.usage().entries == 1
    assert not left.exists()


def test_read_only_disk_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the directory should be")
    store = Store(tmp_path / "cache", MEGABYTE)
    store.put("executable", KEY, {}, b"x")
    assert store.get("executable", KEY) is None


def test_read_takes_well_under_a_millisecond(store: Store) -> None:
    store.put("executable", KEY, {"arguments": [{"name": "x"}] * 8}, bytes(60_000))
    times = []
    for _ in range(20):
        start = time.perf_counter()
        store.get("executable", KEY)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.0008


def _hammer(directory: Path, seed: int) -> int:
    store = Store(directory, MEGABYTE // 2)
    wrong = 0
    for round_number in range(60):
        number = (seed * 7 + round_number) % 20
        key = digest_of(str(number))
        entry = store.get("executable", key)
        expected = bytes([number]) * 40_000
        wrong += entry is not None and entry.payload != expected
        store.put("executable", key, {"number": number}, expected)
    return wrong


def test_many_processes_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(4) as pool:
        wrong = pool.starmap(_hammer, [(tmp_path / "cache", seed) for seed in range(4)])
    assert wrong == [0, 0, 0, 0]
    for path in (tmp_path / "cache").rglob("*"):
        assert not path.name.startswith(".")


# ---- other people's files ------------------------------------------------------------------------


def somebodys_files(place: Path) -> dict[Path, bytes]:
    """Folders named as ours are, with files in them that are not."""
    for name in ("v1/notes.txt", "v2/model.pt", "v2/executable/ab/thesis.tex", ".old", "v10/.x"):
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        os.utime(path, (0, 0))
    return {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_foreign_directory_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = somebodys_files(tmp_path)
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(tmp_path))
    with pytest.warns(RuntimeWarning, match="it holds other files"):
        store = default_store()
    store.put("executable", KEY, {}, b"x")
    store.clear()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


def test_store_of_an_earlier_version_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = tmp_path / "v1" / "executable" / KEY[:2] / KEY
    entry.parent.mkdir(parents=True)
    entry.write_bytes(b"x")
    (tmp_path / "device-0123456789abcdef.lock").write_text("")
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(tmp_path))
    store = default_store()
    store.put("executable", KEY, {}, b"x")
    assert store.persistent and entry.exists()
    store.clear()
    assert not entry.exists()


def test_store_that_another_process_is_marking_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / cache.MARKER).write_text("")  # opened, and not written yet
    (tmp_path / "device-0123456789abcdef.lock").write_text("")
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(tmp_path))
    assert default_store().directory == tmp_path


def _takes(place: Path) -> bool:
    os.environ["ANYMETAL_CACHE_DIR"] = str(place)
    return default_store().persistent


def test_processes_that_start_at_once_share_a_store(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(4) as pool:
        for number in range(40):
            assert all(pool.map(_takes, [tmp_path / str(number)] * 4, chunksize=1))


def test_files_of_others_in_a_store_survive(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache", 200_000)
    store.put("executable", KEY, {}, b"x")
    files = somebodys_files(store.directory)
    files.pop(store._path("executable", KEY), None)
    for number in range(40):
        store.put("executable", digest_of(str(number)), {}, bytes(20_000))
    store.usage()
    store.clear()
    assert store.usage().entries == 0
    assert all(path.read_bytes() == text for path, text in files.items())


def test_clear_without_the_marker_removes_nothing(store: Store) -> None:
    store.put("executable", KEY, {}, b"x")
    (store.directory / cache.MARKER).unlink()
    store.clear()
    assert store._path("executable", KEY).exists()


@pytest.mark.parametrize("value", ["", None])
def test_empty_variable_is_not_set(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if value is None:
        monkeypatch.delenv("ANYMETAL_CACHE_DIR", raising=False)
    else:
        monkeypatch.setenv("ANYMETAL_CACHE_DIR", value)
    assert settings.CACHE_DIR.value() == Path(settings.CACHE_DIR.default)


def test_directory_is_created_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "somewhere" / "anymetal"
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(place))
    store = default_store()
    assert store.directory == place and store.persistent
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o702])
def test_writable_directory_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(mode)
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(place))
    with pytest.warns(RuntimeWarning, match="other users can write to it"):
        store = default_store()
    assert not store.persistent
    assert store.directory != place
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700
    with warnings.catch_warnings():  # the warning comes once
        warnings.simplefilter("error")
        assert default_store() is store


def test_writable_parent_is_not_trusted(tmp_path: Path) -> None:
    parent = tmp_path / "open"
    place = parent / "anymetal"
    place.mkdir(parents=True, mode=0o700)
    parent.chmod(0o777)
    reason = untrusted(place)
    assert reason is not None and str(parent) in reason
    parent.chmod(0o1777)  # the sticky bit, as /tmp has it: others cannot move our directory
    assert untrusted(place) is None


def test_directory_of_another_user_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    assert untrusted(tmp_path) == "it belongs to another user"


def test_group_of_others_is_not_trusted(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    own_group = tmp_path.stat().st_gid == tmp_path.stat().st_uid
    assert (untrusted(tmp_path) is None) == own_group


def test_unusable_place_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(blocker / "inside"))
    with pytest.warns(RuntimeWarning, match="cannot be used"):
        assert not default_store().persistent


def test_size_limit_is_read_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ANYMETAL_CACHE_MEGABYTES", "64.5")
    assert default_store().limit == 67_633_152
    for text in ("plenty", "nan", "inf", "-1", "0", "2.5"):
        monkeypatch.setenv("ANYMETAL_CACHE_MEGABYTES", text)
        with pytest.raises(ValueError, match=f"ANYMETAL_CACHE_MEGABYTES='{text}': expected"):
            default_store()
