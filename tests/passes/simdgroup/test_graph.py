"""Control flow: where lanes that part meet again, and whose values mix there."""

from __future__ import annotations

import pytest

from anymetal.passes.simdgroup.graph import EXIT, Flow, NotVectorisable

DIAMOND = {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}
# A loop that is left from its header and, by a break, from its body.
LOOP = {
    "a": ["head"],
    "head": ["body", "after"],
    "body": ["next", "broken"],
    "next": ["head"],
    "broken": ["after"],
    "after": [],
}
NESTED = {
    "a": ["outer"],
    "outer": ["inner", "end"],
    "inner": ["inner", "tail"],
    "tail": ["outer"],
    "end": [],
}


def test_arms_of_a_branch_meet_behind_it() -> None:
    flow = Flow(DIAMOND, "a")
    assert flow.meeting_point("a") == "d"
    assert flow.between("a") == {"b", "c"}
    assert flow.divergence("a").joins == {"d"}
    assert flow.divergence("a").left == ()


def test_returns_meet_at_the_exit() -> None:
    flow = Flow({"a": ["b", "c"], "b": [], "c": ["d"], "d": []}, "a")
    assert flow.meeting_point("a") == EXIT
    assert flow.between("a") == {"b", "c", "d"}
    assert flow.divergence("a").joins == set()


def test_a_loop_left_at_different_times_mixes_what_it_leads_to() -> None:
    flow = Flow(LOOP, "a")
    (loop,) = flow.loops
    assert loop.header == "head"
    assert loop.blocks == {"head", "body", "next"}
    meeting = flow.divergence("head")
    assert meeting.left == (loop,)
    assert {"after", "broken"} <= meeting.joins
    assert set(flow.exits(loop)) == {"after", "broken"}


def test_a_break_that_parts_lanes_keeps_the_rest_of_the_loop_together() -> None:
    flow = Flow(LOOP, "a")
    assert flow.meeting_point("body") == "after"
    assert flow.between("body") == {"next", "head", "body", "broken"}


def test_divergence_of_an_inner_loop_stays_inside_the_outer_one() -> None:
    flow = Flow(NESTED, "a")
    meeting = flow.divergence("inner")
    assert meeting.joins == {"tail"}
    assert [loop.header for loop in meeting.left] == ["inner"]
    assert flow.innermost_loop("inner").blocks == {"inner"}
    assert flow.meeting_point("inner") == "tail"


def test_blocks_of_a_loop_stand_together_in_the_order() -> None:
    flow = Flow(LOOP, "a")
    ranks = sorted(flow.rank[label] for label in flow.loops[0].blocks)
    assert ranks == list(range(ranks[0], ranks[0] + 3))
    assert flow.rank["broken"] > ranks[-1]


def test_lanes_that_return_are_through_before_the_others_pass_a_barrier() -> None:
    graph = {
        "a": ["head"],
        "head": ["body", "after"],
        "body": ["barrier", "leave"],
        "leave": ["gone"],
        "gone": [],
        "barrier": ["head"],
        "after": [],
    }
    rank = Flow(graph, "a", {"barrier"}).rank
    assert rank["body"] < rank["leave"] < rank["gone"] < rank["barrier"]
    plain = Flow(graph, "a").rank
    assert plain["leave"] > plain["barrier"], "nobody waits: the loop first"


def test_the_return_where_all_lanes_meet_stays_behind_the_loop() -> None:
    graph = {
        "a": ["head"],
        "head": ["body", "end"],
        "body": ["next", "end"],
        "next": ["head"],
        "end": [],
    }
    rank = Flow(graph, "a", {"next"}).rank
    assert rank["end"] > rank["next"]


def test_ways_out_of_a_loop_go_first_but_not_where_they_meet() -> None:
    graph = {
        "a": ["head"],
        "head": ["body", "left"],
        "body": ["next", "broken"],
        "broken": ["end"],
        "next": ["head"],
        "left": ["end"],
        "end": [],
    }
    rank = Flow(graph, "a", {"next"}).rank
    assert rank["broken"] < rank["next"]
    assert rank["end"] > rank["next"]
    behind = Flow(graph, "a", {"a"}).rank
    assert behind["broken"] > behind["next"], "nobody in the loop will wait"


def test_a_loop_with_two_ways_in_is_refused() -> None:
    graph = {"a": ["b", "c"], "b": ["c", "d"], "c": ["b"], "d": []}
    with pytest.raises(NotVectorisable, match="entered in more than one place"):
        Flow(graph, "a")


def test_a_loop_without_end_is_refused() -> None:
    with pytest.raises(NotVectorisable, match="never ends"):
        Flow({"a": ["b", "c"], "b": ["b"], "c": []}, "a")
