"""Source -> Prepared: the author's text as C++, with everything its tokens tell."""

from __future__ import annotations

from anymetal.errors import UnsupportedError
from anymetal.msl.diagnostics import Problem, raise_problems, render
from anymetal.msl.marked_pointers import can_change_spaces
from anymetal.msl.preprocess import Preprocessed, preprocess
from anymetal.msl.reflect import reflect
from anymetal.msl.rewrite import Rewritten, rewrite
from anymetal.msl.strict import StrictChecker
from anymetal.msl.structure import read_structure
from anymetal.msl.tokens import OPENING
from anymetal.nouns import Prepared, Source


def prepare(source: Source) -> Prepared:
    """Preprocesses, checks and rewrites a source; what Apple refuses raises KernelSyntaxError."""
    unit = preprocess(source)
    _check_brackets(unit)
    structure = read_structure(unit.tokens)
    reflection = reflect(structure, unit.origins)
    checker = StrictChecker(structure, reflection, unit.origins, source.language)
    checker.run(unit.headers)
    if checker.unsupported:
        raise_problems(checker.unsupported, unit.origins.excerpt, UnsupportedError)
    if checker.problems:
        raise_problems(_in_order(checker.problems), unit.origins.excerpt)
    warnings = tuple(render(warning, unit.origins.excerpt) for warning in checker.warnings)
    remarks = tuple(render(remark, unit.origins.excerpt) for remark in unit.remarks)

    def made(rewritten: Rewritten, with_spaces: Prepared | None) -> Prepared:
        return Prepared(
            source=source,
            text=rewritten.text,
            entry_points=rewritten.entry_points,
            function_constants=rewritten.function_constants,
            threadgroup_variables=rewritten.threadgroup_variables,
            headers=unit.headers,
            dependencies=unit.dependencies,
            source_map=rewritten.source_map,
            warnings=warnings,
            remarks=remarks,
            with_spaces=with_spaces,
        )

    plain = rewrite(unit, structure, reflection)
    if not source.strict or not can_change_spaces(structure, reflection):
        return made(plain, None)
    return made(plain, made(rewrite(unit, structure, reflection, spaces=True), None))


def _in_order(problems: list[Problem]) -> list[Problem]:
    """By place; what a macro repeats at one place is said once."""
    return sorted(
        dict.fromkeys(problems),
        key=lambda problem: (
            (problem.position.file, problem.position.line, problem.position.column)
            if problem.position
            else ("", 0, 0)
        ),
    )


def _check_brackets(unit: Preprocessed) -> None:
    """Without matching brackets nothing can be read: say which one stands alone."""
    index = unit.tokens.unmatched
    if index is None:
        return
    token = unit.tokens.tokens[index]
    if token.text in OPENING:
        text = f"expected '{OPENING[token.text]}' to match this '{token.text}'"
    else:
        text = f"extraneous closing bracket ('{token.text}')"
    raise_problems([Problem(unit.origins.position(token), "error", text)], unit.origins.excerpt)
