"""Kernels compiled ahead of time, in one file: outlines of sources and executables, by key.

A bundle runs where no compiler is installed. Its file is an entry as the cache has them (a digest,
a note, bytes): one that was cut off or changed is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anymetal.errors import BundleError
from anymetal.store.cache import Entry, decode, encode

VERSION = 6
_KIND = "anymetal bundle"


@dataclass(frozen=True)
class Bundle:
    """What one file holds. `outlines` are notes; `executables` have a note and code."""

    target: str
    outlines: Mapping[str, dict[str, Any]]
    executables: Mapping[str, Entry]
    policies: Mapping[str, Any] = field(default_factory=dict)  # launch shapes, by question


def write_bundle(path: Path, bundle: Bundle) -> None:
    """Writes the file; the same kernels give the same bytes."""
    payloads, table, start = [], {}, 0
    for key, entry in sorted(bundle.executables.items()):
        table[key] = {"note": entry.note, "start": start, "length": len(entry.payload)}
        payloads.append(entry.payload)
        start += len(entry.payload)
    note = {
        "kind": _KIND,
        "version": VERSION,
        "target": bundle.target,
        "outlines": dict(sorted(bundle.outlines.items())),
        "policies": dict(sorted(bundle.policies.items())),
        "executables": table,
    }
    path.write_bytes(encode(note, b"".join(payloads)))


def read_bundle(path: Path) -> Bundle:
    """Raises BundleError where the file is no bundle, is damaged, or is of another version."""
    try:
        entry = decode(path.read_bytes())
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror or error}") from None
    if entry is None or entry.note.get("kind") != _KIND:
        raise BundleError(f"{path} is not a bundle of anymetal, or is damaged: its digest is wrong")
    if entry.note["version"] != VERSION:
        raise BundleError(
            f"{path} is a bundle of version {entry.note['version']}, this anymetal reads version"
            f" {VERSION}: write it again with `anymetal compile`"
        )
    executables = {
        key: Entry(row["note"], entry.payload[row["start"] : row["start"] + row["length"]])
        for key, row in entry.note["executables"].items()
    }
    note = entry.note
    return Bundle(note["target"], note["outlines"], executables, note["policies"])
