"""The IR parser and the order of blocks."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from anymetal.ir import Function, Module, parse
from anymetal.ir.flow import (
    dominates,
    graph_of,
    immediate_dominators,
    loop_aware_order,
    predecessors,
)

LOOP_WITH_EXIT = """
define void @f(ptr %p, i32 %n) {
entry:
  br label %head
head:
  %i = phi i32 [ 0, %entry ], [ %next, %latch ]
  %out = icmp eq i32 %i, %n
  br i1 %out, label %after, label %body
body:
  switch i32 %i, label %latch [
    i32 1, label %odd
    i32 2, label %after
  ]
odd:
  store i32 %i, ptr %p, align 4
  br label %latch
latch:
  %next = add i32 %i, 1
  br label %head
after:
  ret void
}
"""


def function_of(text: str) -> Function:
    return parse(text).functions[0]


def reparsed_by_llvm(module: Module) -> str:
    return str(llvm.parse_assembly(str(module)))


def test_parse_printed_by_llvm_round_trips() -> None:
    printed = str(llvm.parse_assembly(LOOP_WITH_EXIT))
    assert reparsed_by_llvm(parse(printed)) == printed


def test_parse_joins_the_lines_of_a_switch() -> None:
    body = function_of(LOOP_WITH_EXIT).block("body")
    assert body.terminator.opcode == "switch"
    assert body.successors == ["latch", "odd", "after"]


def test_parse_names_an_unnamed_entry_block_by_the_next_number() -> None:
    text = "define i32 @f(i32 %0, i32 %1) {\n  %3 = add i32 %0, %1\n  ret i32 %3\n}\n"
    assert function_of(text).blocks[0].label == "2"


def test_parse_refuses_a_function_without_end() -> None:
    with pytest.raises(ValueError, match="no closing brace"):
        parse("define void @f() {\n  ret void\n")


def test_instruction_tells_result_opcode_and_callee() -> None:
    text = 'define void @f(ptr %p) {\n  %"a b" = tail call i32 @g(ptr %p), !dbg !3\n  ret void\n}\n'
    call = function_of(text).blocks[0].instructions[0]
    assert (call.result, call.opcode, call.callee) == ('%"a b"', "call", "g")


def test_rename_predecessor_changes_only_that_label() -> None:
    function = function_of(LOOP_WITH_EXIT)
    function.rename_predecessor(["head"], "latch", "latch.2")
    assert function.block("head").instructions[0].text == (
        "%i = phi i32 [ 0, %entry ], [ %next, %latch.2 ]"
    )


def test_order_keeps_a_loop_together_and_before_its_exit() -> None:
    graph = graph_of(function_of(LOOP_WITH_EXIT))
    order, loops = loop_aware_order(graph, "entry")
    assert order[0] == "entry"
    assert order[-1] == "after"
    assert [loop.header for loop in loops] == ["head"]
    assert loops[0].blocks == {"head", "body", "odd", "latch"}
    assert order.index("odd") < order.index("latch")


def test_order_puts_inner_loops_inside_outer_ones() -> None:
    graph = {
        "entry": ["outer"],
        "outer": ["inner", "end"],
        "inner": ["inner.body", "outer.latch"],
        "inner.body": ["inner"],
        "outer.latch": ["outer"],
        "end": [],
    }
    order, loops = loop_aware_order(graph, "entry")
    assert [loop.header for loop in loops] == ["outer", "inner"]
    assert order == ["entry", "outer", "inner", "inner.body", "outer.latch", "end"]


def test_order_covers_an_irreducible_loop_once() -> None:
    graph = {"entry": ["a", "b"], "a": ["b", "end"], "b": ["a"], "end": []}
    order, _ = loop_aware_order(graph, "entry")
    assert sorted(order) == ["a", "b", "end", "entry"]
    assert order[-1] == "end"


def test_order_of_a_long_chain_needs_no_recursion() -> None:
    graph = {str(i): [str(i + 1)] for i in range(5000)} | {"5000": []}
    order, _ = loop_aware_order(graph, "0")
    assert order == [str(i) for i in range(5001)]


def test_dominates_follows_every_path() -> None:
    graph = graph_of(function_of(LOOP_WITH_EXIT))
    assert dominates(graph, "entry", "head", "after")
    assert not dominates(graph, "entry", "odd", "latch")
    assert dominates(graph, "entry", "body", "latch")


DIAMOND = {"a": ["b", "c"], "b": ["d"], "c": ["d", "c"], "d": ["b", "e"], "e": [], "x": ["a"]}


def test_immediate_dominators_of_what_can_be_reached() -> None:
    expected = {"a": "a", "b": "a", "c": "a", "d": "a", "e": "d"}
    assert immediate_dominators(DIAMOND, "a") == expected
    for block in expected:
        for target in expected:
            chain, above = [target], target
            while above != "a":
                above = expected[above]
                chain.append(above)
            assert dominates(DIAMOND, "a", block, target) == (block in chain)


def test_predecessors_turn_every_edge_round() -> None:
    assert predecessors(DIAMOND)["d"] == ["b", "c"]
    assert predecessors(predecessors(DIAMOND))["a"] == ["b", "c"]
