"""MSL tokens -> C++ text that clang compiles: all rewrites, in one order."""

from __future__ import annotations

from dataclasses import dataclass

from anymetal.msl import literals
from anymetal.msl.address_spaces import erase_attributes, erase_spaces, keep_spaces
from anymetal.msl.aliases import aliases_in, resolved
from anymetal.msl.casts import CastRewriter, rewrite_decltypes
from anymetal.msl.diagnostics import Problem, raise_problems
from anymetal.msl.edits import Edits, Writer, spell_edited
from anymetal.msl.marked_pointers import mark_pointers
from anymetal.msl.overloads import OverloadMerger
from anymetal.msl.preprocess import Preprocessed
from anymetal.msl.reflect import Instance, Kernel, Reflection
from anymetal.msl.source_map import SourceMap
from anymetal.msl.structure import Declaration, Structure
from anymetal.msl.swizzles import rewrite_swizzles
from anymetal.msl.threadgroup import ThreadgroupRewriter, find_declarations, unaccounted
from anymetal.nouns import EntryPoint, FunctionConstant, Position, ThreadgroupVariable


@dataclass(frozen=True)
class Rewritten:
    """The text, its map and the doors into it."""

    text: str
    source_map: SourceMap
    entry_points: dict[str, EntryPoint]
    function_constants: dict[str, FunctionConstant]
    threadgroup_variables: tuple[ThreadgroupVariable, ...]


def rewrite(
    unit: Preprocessed, structure: Structure, reflection: Reflection, *, spaces: bool = False
) -> Rewritten:
    """`spaces` keeps them, as clang spells them: for a text that is checked and never compiled."""
    return _Rewriter(unit, structure, reflection, spaces).run()


class _Rewriter:
    def __init__(
        self, unit: Preprocessed, structure: Structure, reflection: Reflection, spaces: bool
    ) -> None:
        self.spaces = spaces
        self.unit = unit
        self.tokens = unit.tokens
        self.structure = structure
        self.reflection = reflection
        self.edits = Edits()
        self.threadgroup = ThreadgroupRewriter(self.tokens, self.edits)

    def run(self) -> Rewritten:
        self._check(self._edit())
        writer = Writer(self.tokens, self.edits, self.unit.origins)
        text = writer.write()
        return Rewritten(
            text,
            writer.map,
            self._entry_points(),
            self._constants(),
            tuple(
                ThreadgroupVariable(slot, self.tokens.text(name), self._position(name))
                for slot, name in enumerate(self.threadgroup.slots)
            ),
        )

    def _edit(self) -> OverloadMerger:
        merger = OverloadMerger(self.structure, self.edits, self.unit.origins)
        erase_attributes(self.tokens, self.edits)
        if self.spaces:
            keep_spaces(self.tokens, self.structure.functions, self.edits)
            mark_pointers(self.structure, self.edits)
        else:
            merger.run()
            erase_spaces(self.tokens, self.structure.functions, self.edits)
        literals.rewrite_literals(self.tokens, self.edits)
        CastRewriter(self.structure, self.edits).run()
        rewrite_decltypes(self.tokens, self.edits)
        rewrite_swizzles(self.tokens, self.edits)
        self._functions(merger.dropped)
        self._inlining()
        self._function_constants()
        for instantiation in self.structure.instantiations:
            # Whatever is used is instantiated without being told; nothing else shall be emitted.
            self.edits.remove(instantiation.start, instantiation.end)
        for kernel in self.reflection.kernels:
            self.threadgroup.rewrite(kernel)
        return merger

    def _check(self, merger: OverloadMerger) -> None:
        problems = [*merger.problems, *self._leftovers()]
        if problems:
            raise_problems(problems, self.unit.origins.excerpt)

    def _leftovers(self) -> list[Problem]:
        """A threadgroup variable that was not rewritten would be a local of each thread."""
        return [
            Problem(
                self._position(index),
                "error",
                "anymetal does not understand this use of the threadgroup address space",
            )
            for index in unaccounted(self.tokens, self.threadgroup.accounted)
        ]

    def _position(self, index: int) -> Position:
        return self.unit.origins.position(self.tokens.tokens[index])

    def _functions(self, dropped: set[int]) -> None:
        """Every function becomes inline: clang emits only what the kernel asked for needs."""
        for function in self.structure.functions:
            if function.scope.kind != "namespace" or function.start in dropped:
                continue
            words = [self.tokens.text(i) for i in range(function.head, function.name[0])]
            for offset, word in enumerate(words):
                if word == "kernel" and self.tokens.text(function.head + offset - 1) != "[":
                    self.edits.remove(function.head + offset)
            if function.body is not None and "inline" not in words and "friend" not in words:
                self.edits.insert(function.head, "inline")

    def _inlining(self) -> None:
        """`noinline` would keep a barrier out of the kernel's own function."""
        for index, text in enumerate(self.tokens.texts):
            if text in ("noinline", "__noinline__"):
                self.edits.word(index, "always_inline")

    def _function_constants(self) -> None:
        for constant in self.reflection.constants:
            variable = constant.variable
            self.edits.replace(
                variable.head,
                variable.end,
                [
                    f"AM_FUNCTION_CONSTANT_{constant.index}(",
                    range(constant.name, constant.name + 1),
                    ",",
                    *(range(index, index + 1) for index in constant.type),
                    ");",
                ],
            )
        by_name = {self.tokens.text(c.name): c.index for c in self.reflection.constants}
        for index, text in enumerate(self.tokens.texts):
            if text == "is_function_constant_defined" and self.tokens.text(index + 1) == "(":
                end = self.tokens.after(index + 1)
                name = self.tokens.text(end - 2)
                if name in by_name:
                    start = index
                    if self.tokens.text(index - 1) == "::":
                        start = index - 2
                    self.edits.replace(start, end, [f"AM_IS_DEFINED_{by_name[name]}"])

    def _constants(self) -> dict[str, FunctionConstant]:
        aliases = aliases_in(self.tokens) if self.reflection.constants else {}
        return {
            self.tokens.text(c.name): FunctionConstant(
                self.tokens.text(c.name),
                c.index,
                resolved("".join(self._spaced(i) for i in c.type).strip(), aliases),
                self._position(c.name),
            )
            for c in self.reflection.constants
        }

    def _spaced(self, index: int) -> str:
        token = self.tokens.tokens[index]
        return f" {token.text}" if token.space else token.text

    def _entry_points(self) -> dict[str, EntryPoint]:
        entries = {}
        for kernel in self.reflection.kernels:
            if not kernel.function.is_template:
                entry = self._plain(kernel)
                entries[entry.name] = entry
        for instance in self.reflection.instances:
            entries[instance.name] = self._instance(instance)
        return entries

    def _plain(self, kernel: Kernel) -> EntryPoint:
        name = kernel.host_name or kernel.name
        expression = "&" + self._qualified(kernel, kernel.function.name)
        return self._entry(kernel, name, expression, kernel.function, kernel.limit)

    def _instance(self, instance: Instance) -> EntryPoint:
        expression = "&" + self._qualified(instance.kernel, instance.expression)
        if instance.parameters is not None:
            opening, close = instance.parameters
            parameters = spell_edited(self.tokens, self.edits, opening, close + 1)
            expression = f"static_cast<void (*){parameters}>({expression})"
        limit = instance.max_total_threads
        return self._entry(instance.kernel, instance.name, expression, instance.declaration, limit)

    def _qualified(self, kernel: Kernel, name: tuple[int, int]) -> str:
        """A kernel may be called `step`, a name that `using namespace metal` brings too."""
        first, end = name
        while self.tokens.text(first + 1) == "::" and first + 2 < end:
            first += 2
        path = [space for space in kernel.function.scope.path if space]
        return "::".join(["", *path, spell_edited(self.tokens, self.edits, first, end)])

    def _entry(
        self,
        kernel: Kernel,
        name: str,
        expression: str,
        declaration: Declaration,
        limit: int | None,
    ) -> EntryPoint:
        is_instance = declaration is not kernel.function
        place = declaration.start if is_instance else kernel.function.name[0]
        return EntryPoint(
            name=name,
            expression=expression,
            parameters=tuple(parameter.noun for parameter in kernel.parameters),
            position=self._position(place),
            max_total_threads=limit,
            scope="::".join(declaration.scope.path),
            has_initial_values=any(
                declarator.initialiser is not None
                for found in find_declarations(self.tokens, kernel.function)
                for declarator in found.declarators
            ),
        )
