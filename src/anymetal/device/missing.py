"""Which operators MPS lacks, read from torch's own table of operators.

The table is `native_functions.yaml`, from which torch's kernels are registered. It comes with every
torch wheel, as data of the package `torchgen`, so it is that of the torch at hand. An operator is
missing where its row names kernels for some devices, none for MPS, and no composite that would do.

The table is read line by line: torchgen's own reader takes 1.3 s on a 2-core cloud machine (this
one 0.04 s), which every program that enables the device would pay for, and needs PyYAML, which
torch does not bring. A test compares the two.

Not in the table, and so not known here: dtypes and shapes that an MPS kernel refuses, and operators
of other libraries. An operator that has no MPS kernel and is not torch's own counts as missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_TABLE = "packaged/ATen/native/native_functions.yaml"
_ANY_DEVICE = (
    "MPS",
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)
# Registered for the CPU in ATen/mps/MPSFallback.mm, which no wheel has: a Mac runs these on the CPU
# and warns, without PYTORCH_ENABLE_MPS_FALLBACK. linalg_svd stands there for what it calls.
FALLS_BACK = frozenset({"aten::embedding_renorm_", "aten::_linalg_svd.U"})

_NAME = re.compile(r"- func: ([\w.]+)\(")
_DISPATCH = re.compile(r"\n  dispatch:[ \t]*(?:#.*)?\n")
_KERNELS = re.compile(r"    (\w+(?:, \w+)*): ")


@dataclass(frozen=True)
class Row:
    """One operator of the table: the keys it has kernels for; none at all is a composite."""

    name: str
    keys: frozenset[str]
    delegate: str | None
    generated: tuple[str, ...]


def missing_operators(table: str | None = None) -> dict[str, str]:
    """Operators that MPS lacks, each with the name a Mac reports: its own or its out= form's."""
    rows = {row.name: row for row in parse(table if table is not None else read_table())}
    missing: dict[str, str] = {}
    for row in rows.values():
        reported = _lacking(row, rows)
        if reported is not None:
            for name in (row.name, *row.generated):
                missing[f"aten::{name}"] = f"aten::{reported}"
    return missing


def read_table() -> str:
    """The text of torch's table; nothing where the wheel has none."""
    spec = find_spec("torchgen")
    for place in (spec.submodule_search_locations or []) if spec else []:
        path = Path(place) / _TABLE
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return ""


def parse(table: str) -> Iterator[Row]:
    """The rows, split by text."""
    for text in re.split(r"^(?=- func: )", table, flags=re.MULTILINE):
        match = _NAME.match(text)
        if match:
            yield Row(
                match.group(1),
                _keys(text),
                _field(text, "structured_delegate"),
                tuple(filter(None, (_field(text, "autogen") or "").split(", "))),
            )


def _lacking(row: Row, rows: dict[str, Row]) -> str | None:
    """The operator that has no kernel for MPS when this one is called, or None."""
    if "MPS" in row.keys or not (row.keys or row.delegate):
        return None
    if row.delegate is None and not row.keys & set(_ANY_DEVICE):
        return row.name
    for called in _calls(row):
        if called in rows:
            return _lacking(rows[called], rows)
    return None


def _calls(row: Row) -> Iterator[str]:
    """What an operator without kernels of its own calls, as far as the names tell.

    A composite calls its out= form or its in-place form, where that has kernels: frexp.Tensor
    calls frexp.Tensor_out, and put calls put_.
    """
    if row.delegate is not None:
        yield row.delegate
    elif "CompositeExplicitAutograd" in row.keys:
        base, dot, overload = row.name.partition(".")
        yield f"{base}.{overload}_out" if overload else f"{base}.out"
        if not base.endswith("_"):
            yield f"{base}_{dot}{overload}"


def _keys(text: str) -> frozenset[str]:
    keys: set[str] = set()
    dispatch = _DISPATCH.search(text)
    for line in text[dispatch.end() :].splitlines() if dispatch else ():
        match = _KERNELS.match(line)
        if match:
            keys.update(match.group(1).split(", "))
        elif not line.strip().startswith("#"):
            break
    return frozenset(keys)


def _field(text: str, name: str) -> str | None:
    match = re.search(rf"^  {name}: ([^#\n]+)", text, flags=re.MULTILINE)
    return match.group(1).strip() if match else None
