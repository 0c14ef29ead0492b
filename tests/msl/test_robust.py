"""Whatever is written, the front end answers with a Prepared or with KernelSyntaxError."""

from __future__ import annotations

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.msl.sources import HEADER
from tests.msl.test_function_constants import CONSTANTS

from anymetal.errors import KernelSyntaxError
from anymetal.msl import prepare
from anymetal.nouns import Source

PIECES = re.findall(
    r"\s+|\w+|[^\w\s]",
    CONSTANTS
    + """
    template <typename T, int N> struct Pair {
      T a; Pair(T x) thread : a(x) {} T get() const device { return a; }
      T get() const constant { return a; }
    };
    template <typename T> T first(device T* p) { return (T)p[0] + T(1.5h); }
    template <typename T> T first(threadgroup T* p) { return (T)p[0] + T(1.5h); }
    template <typename T>
    [[kernel]] void f(device T* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
      threadgroup T t[4] = {0}, u;
      auto l = [&](thread T& v) { return static_cast<T>(v); };
      x[i] = l(u) + first(x);
    }
    template [[host_name("a")]] [[kernel]] decltype(f<half>) f<half>;
    """,
)
EXTRA = [
    *("threadgroup", "device", "constant", "const", "template", "kernel", "struct", "operator"),
    *("using", "typedef", "static_cast", "decltype", "alignas", "main", "1.0h", "..."),
    *("[[buffer(0)]]", "[[kernel]]", "[[", "]]", "::", *"*&(){}[]<>;,=:.~"),
]

changes = st.lists(
    st.tuples(
        st.integers(0, len(PIECES) - 1),
        st.sampled_from(["remove", "repeat", "insert"]),
        st.sampled_from(EXTRA),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes)
def test_broken_sources_are_refused_in_order(changes: list[tuple[int, str, str]]) -> None:
    pieces = list(PIECES)
    for place, action, word in changes:
        if action == "remove":
            pieces[place] = ""
        elif action == "repeat":
            pieces[place] *= 2
        else:
            pieces[place] += f" {word} "
    try:
        unit = prepare(Source(HEADER + "".join(pieces)))
    except KernelSyntaxError as error:
        assert "error" in str(error)
    else:
        assert unit.text
