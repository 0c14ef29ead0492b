"""What judging came to, engine by engine: figures that outlast the results of single kernels.

Results of all kernels take hours and lie in a folder that is not kept. The page is written of
these figures: judging one engine again leaves those of the other, with their date, as they are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PLACE = Path(__file__).parent / "summary.json"
KINDS = (
    *("equal", "NaN signs", "nothing written", "other engine", "undefined"),
    *("not run", "differ"),
)
_UNPROVEN = ("nothing written", "not run", "differ")


@dataclass
class Summary:
    """Of one engine: kernels by what came out, by template, and those that are listed.

    `undefined` has templates with the reason, `other_engine` kernels that are too long for this
    one, `bad` kernels that are not compared or not equal, with what was found.
    """

    date: str
    words: Counter[str] = field(default_factory=Counter)
    templates: Counter[str] = field(default_factory=Counter)
    signs: Counter[str] = field(default_factory=Counter)
    undefined: Counter[str] = field(default_factory=Counter)
    other_engine: list[str] = field(default_factory=list)
    bad: list[list[str]] = field(default_factory=list)

    @property
    def compared(self) -> int:
        return self.words["equal"] + self.words["NaN signs"] + self.words["differ"]

    def add(self, row: Mapping[str, Any], word: str) -> None:
        """Counts one kernel."""
        kind, template = kind_of(word), row["family"]
        self.words[kind] += 1
        self.templates[template] += 1
        if kind == "NaN signs":
            self.signs[template] += 1
        elif kind == "undefined":
            self.undefined[f"{template}: {word.removeprefix('undefined: ')}"] += 1
        elif kind == "other engine":
            self.other_engine.append(row["kernel"])
        elif kind in _UNPROVEN:
            self.bad.append([row["kernel"], word])


def kind_of(word: str) -> str:
    """The column of a word that says how results compare."""
    if word in ("equal", "NaN signs"):
        return word
    if word == "equal, nothing written":
        return "nothing written"
    for start, kind in (("engine: ", "other engine"), ("undefined: ", "undefined")):
        if word.startswith(start):
            return kind
    return "not run" if word.startswith("not run") else "differ"


def summed_up(rows: Iterable[Mapping[str, Any]], date: str) -> dict[str, Summary]:
    """The figures of all engines that results have words of."""
    found: dict[str, Summary] = {}
    for row in rows:
        for engine, word in row["results"]:
            found.setdefault(engine, Summary(date)).add(row, word)
    return found


def kept(place: Path = PLACE) -> dict[str, Summary]:
    """The figures of earlier runs."""
    if not place.exists():
        return {}
    rows = json.loads(place.read_text())
    counters = ("words", "templates", "signs", "undefined")
    return {
        engine: Summary(**{**row, **{name: Counter(row[name]) for name in counters}})
        for engine, row in rows.items()
    }


def renewed(old: Mapping[str, Summary], new: Mapping[str, Summary]) -> dict[str, Summary]:
    """The figures of both: a sample does not take the place of more kernels."""
    found = dict(old)
    for engine, summary in new.items():
        if engine not in found or summary.words.total() >= found[engine].words.total():
            found[engine] = summary
    return dict(sorted(found.items()))


def keep(summaries: Mapping[str, Summary], place: Path = PLACE) -> None:
    rows = {engine: vars(summary) for engine, summary in summaries.items()}
    place.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
