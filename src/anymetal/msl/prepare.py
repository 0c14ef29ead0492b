"""Source -> Prepared: the author's text as C++, with everything its tokens tell."""

from __future__ import annotations

from anymetal.msl.preprocess import preprocess
from anymetal.msl.reflect import reflect
from anymetal.msl.rewrite import rewrite
from anymetal.msl.structure import read_structure
from anymetal.nouns import Prepared, Source


def prepare(source: Source) -> Prepared:
    """Preprocesses, checks and rewrites a source. Raises KernelSyntaxError where Apple's compiler would."""
    unit = preprocess(source)
    structure = read_structure(unit.tokens)
    reflection = reflect(structure, unit.origins)
    rewritten = rewrite(unit, structure, reflection)
    return Prepared(
        source=source,
        text=rewritten.text,
        entry_points=rewritten.entry_points,
        function_constants=rewritten.function_constants,
        threadgroup_variables=rewritten.threadgroup_variables,
        headers=unit.headers,
        dependencies=unit.dependencies,
        source_map=rewritten.source_map,
    )
