"""Every kind of finding: one row each, from which all that knows kinds is made.

Reports take name and hint from here, SARIF its rules, the documentation its table (a test compares
them), and the shadow runtime its enum `am_kind`: the kinds with a message, in this order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from anymetal.checker import hints, messages
from anymetal.checker.finding import Finding, Severity
from anymetal.checker.messages import Sighting

About = Literal["memory", "suspend", "arithmetic", "launch", "comment", "host"]
"""What a finding of a kind points at. A suspend is a barrier or a collective function, the host an
extension's Objective-C++."""


@dataclass(frozen=True)
class Kind:
    """One row. `title` names the SARIF rule, `meaning` is the row in docs/checker.md.

    `severity` is what the kind usually counts as; a single finding may say otherwise.
    `message` makes the opening sentence of what the shadow runtime records: a template over
    Sighting's attributes, or a function. Kinds without one are found by Python.
    """

    name: str
    about: About
    title: str
    meaning: str
    hint: str | Callable[[Finding], str]
    severity: Severity = "error"
    message: str | Callable[[Sighting], str] | None = None

    @property
    def rule_name(self) -> str:
        """`out_of_bounds` is `OutOfBounds` in SARIF."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def enumerator(self) -> str:
        """The kind's name in the shadow runtime."""
        return f"AM_{self.name.upper()}"

    def hint_for(self, finding: Finding) -> str:
        """What usually mends a finding of this kind in this situation."""
        return self.hint if isinstance(self.hint, str) else self.hint(finding)

    def message_for(self, seen: Sighting) -> str:
        """The opening sentence of a finding that the shadow runtime recorded."""
        if self.message is None:
            raise ValueError(f"the shadow runtime records no {self.name}")
        if callable(self.message):
            return self.message(seen)
        return self.message.format(seen=seen)


ROWS = (
    Kind(
        name="out_of_bounds",
        about="memory",
        title="Access outside of a buffer or array",
        meaning="an access outside of a tensor or array",
        hint=hints.out_of_bounds,
        message=messages.out_of_bounds,
    ),
    Kind(
        name="race",
        about="memory",
        title="Two threads access the same memory without order, and one writes",
        meaning=(
            "unordered accesses of two threads, one a write; a warning where all write the"
            " same value"
        ),
        hint=hints.race,
        message=messages.race,
    ),
    Kind(
        name="barrier_divergence",
        about="suspend",
        title="Threads of a threadgroup do not meet at one barrier",
        meaning="a barrier that not all threads come to; a warning where the others have returned",
        hint=hints.barrier_divergence,
        message=messages.barrier_divergence,
    ),
    Kind(
        name="barrier_flags",
        about="memory",
        title="The memory flags of a barrier do not cover the memory that is shared",
        meaning="a barrier whose memory flags do not cover the memory that is shared",
        hint=hints.barrier_flags,
        message=(
            "the barrier between the two accesses to {seen.memory} element {seen.index} does not"
            " order {seen.space} memory"
        ),
    ),
    Kind(
        name="uninitialised",
        about="memory",
        title="Read of memory that nobody wrote",
        meaning="a read of memory that nothing wrote",
        hint=hints.uninitialised,
        message="read of {seen.memory} element {seen.index}, which nobody has written",
    ),
    Kind(
        name="unwritten_output",
        about="launch",
        title="Elements of an output were never written",
        meaning="elements of an output that no thread wrote",
        hint=(
            "Check the number of threads and the row length against the tensor's shape; where a"
            " part is meant to stay as it is, say so: outputs=() in Python, --severity"
            " unwritten_output=off on the command line, or [tool.anymetal.severity]."
        ),
        severity="warning",
    ),
    Kind(
        name="misaligned",
        about="memory",
        title="Address is not aligned for its type",
        meaning="an address that is not aligned for its type",
        hint=hints.misaligned,
        message=(
            "{seen.verb} of a vector at element {seen.index} of {seen.memory} is not aligned to its"
            " size"
        ),
    ),
    Kind(
        name="element_size",
        about="launch",
        title="The tensor's element size differs from the kernel's pointer type",
        meaning="a tensor whose elements have another size than the kernel's pointer type",
        hint=(
            "Pass a tensor of the type the kernel reads, or call the kernel's instance for this"
            " dtype."
        ),
    ),
    Kind(
        name="argument_type",
        about="launch",
        title="The argument's type differs from the kernel's",
        meaning="a tensor, number or list of another type than the kernel's parameter",
        hint=(
            "Convert the tensor, for example with .float() or .half(), or call the kernel's"
            " instance for this dtype."
        ),
    ),
    Kind(
        name="argument_size",
        about="launch",
        title="The argument is missing, too short or one too many",
        meaning="an argument shorter than what the kernel reads, a missing one, one too many",
        hint="Pass as many bytes and numbers as the kernel's parameter has.",
    ),
    Kind(
        name="layout",
        about="memory",
        title="The tensor is not contiguous, and the kernel takes no strides",
        meaning="a tensor that is not contiguous, where the kernel reads other elements for that",
        hint="Pass the tensor with .contiguous(), or pass its strides to the kernel and use them.",
        severity="warning",
        message=messages.layout,
    ),
    Kind(
        name="aliasing",
        about="memory",
        title="Two arguments are the same memory, and one is written",
        meaning="two arguments in the same memory, one written; in place and in step a warning",
        hint=hints.aliasing,
        message=messages.aliasing,
    ),
    Kind(
        name="read_only",
        about="memory",
        title="Write to read-only memory",
        meaning="a write to constant memory or through a pointer to const",
        hint="Declare the parameter `device T*` without const, or write to another buffer.",
        message="write to read-only {seen.memory} element {seen.index}",
    ),
    Kind(
        name="limits",
        about="launch",
        title="A limit of the GPU is exceeded",
        meaning="too much threadgroup memory, too many threads or buffers",
        hint=hints.limits,
    ),
    Kind(
        name="collective_divergence",
        about="suspend",
        title="Only a part of a simdgroup reaches a collective function",
        meaning="a collective that only some lanes of the simdgroup reach",
        hint=(
            "Call it outside the branch, so that every lane takes part, and let lanes without work"
            " pass a neutral value (0 for a sum, -INFINITY for a maximum)."
        ),
        severity="warning",
        message=messages.collective_divergence,
    ),
    Kind(
        name="shuffle",
        about="suspend",
        title="A shuffle reads from a lane that is not there",
        meaning="a shuffle from a lane that does not exist (error) or is not active (warning)",
        hint=(
            "Keep the lane below the width of the simdgroup and let all lanes reach the call; where"
            " the last simdgroup is not full, use the value only if its lane is there."
        ),
        message=messages.shuffle,
    ),
    Kind(
        name="arithmetic",
        about="arithmetic",
        title="Integer division by zero, shift past the width, or an index that overflows",
        meaning="an integer division by zero, a shift by at least the width, an overflowing index",
        hint=hints.arithmetic,
        message="{seen.operation}",
    ),
    Kind(
        name="nan",
        about="arithmetic",
        title="A NaN or infinity is born here",
        meaning="the first NaN or infinity, on request",
        hint=(
            "Look at the operands of this line: subtract the maximum before exp, add an epsilon"
            " under a square root or a division, and sum halves in float."
        ),
        message="{seen.operation}",
    ),
    Kind(
        name="timeout",
        about="launch",
        title="The kernel does not end",
        meaning="a kernel that does not end",
        hint=(
            "Check the condition of the loop at this line; waiting for another threadgroup never"
            " ends, as they need not run at the same time."
        ),
    ),
    Kind(
        name="assertion",
        about="launch",
        title="An assertion of the kernel does not hold",
        meaning="an `assert` of the kernel that does not hold",
        hint=(
            "Look at the values of the condition, for example with os_log_default.log; a Mac does"
            " not evaluate an assert."
        ),
    ),
    Kind(
        name="silence",
        about="comment",
        title="A comment that means to silence a finding does not",
        meaning="an `allow` comment that accepts nothing",
        hint="For example: // anymetal: allow(race) every thread writes the same flag",
        severity="warning",
    ),
    Kind(
        name="stale_encoder",
        about="host",
        title="Encoding on an encoder or command buffer that has ended",
        meaning="extensions: a call on an encoder that has ended, or on a committed command buffer",
        hint=(
            "Take the encoder inside of the block that encodes, from stream->commandEncoder(), and"
            " keep none: synchronize(), copies and torch's operators end it."
        ),
    ),
    Kind(
        name="owned_by_torch",
        about="host",
        title="The stream's own encoder is ended, or its command buffer committed",
        meaning="extensions: `endEncoding`, `commit` or a wait on what torch's stream owns",
        hint=(
            "Leave it open: the stream ends its encoder and commits. Where something must end, call"
            " stream->endKernelCoalescing() or stream->synchronize(SyncType::COMMIT)."
        ),
    ),
    Kind(
        name="open_encoder",
        about="host",
        title="A second encoder while one is open on the command buffer",
        meaning="extensions: a second encoder, or a blit, while torch's is open",
        hint=(
            "Use stream->commandEncoder() for kernels; before a blit or an encoder of your own call"
            " stream->endKernelCoalescing(), and end yours before the block does."
        ),
    ),
    Kind(
        name="host_wait",
        about="host",
        title="The host waits for the GPU inside of an operator",
        meaning="extensions: `COMMIT_AND_WAIT` or `waitUntilCompleted` inside of an operator",
        hint=(
            "Return without waiting, with SyncType::NONE: later work on the stream comes after"
            " yours. Where the host needs a value, let the caller read it with .item()."
        ),
        severity="warning",
    ),
    Kind(
        name="held_allocation",
        about="host",
        title="Memory is allocated while an encoder is held",
        meaning="extensions: an allocation or an operator of torch's while an encoder is held",
        hint="Allocate and compute everything before the block; inside of it only encode.",
    ),
    Kind(
        name="threadgroup_length",
        about="host",
        title="A threadgroup parameter without its length",
        meaning="extensions: a missing or odd `setThreadgroupMemoryLength`",
        hint="Call setThreadgroupMemoryLength:atIndex: before the dispatch, in multiples of 16.",
    ),
    Kind(
        name="view_offset",
        about="host",
        title="A view is bound without its offset",
        meaning="extensions: a buffer bound without the tensor's `storage_offset`",
        hint=(
            "Bind getMTLBufferStorage(t) with offset t.storage_offset() * t.element_size();"
            " data_ptr() is no buffer."
        ),
    ),
    Kind(
        name="freed_buffer",
        about="host",
        title="A buffer is used after its tensor was freed",
        meaning="extensions: a buffer whose tensor has been freed",
        hint=(
            "Keep the tensor in a variable until the kernel is encoded: x.contiguous() as a"
            " temporary is gone at the end of its statement."
        ),
    ),
    Kind(
        name="unordered_buffers",
        about="host",
        title="Two command buffers use a buffer without order, and one writes",
        meaning="extensions: two command buffers in conflict over a buffer without an event",
        hint=(
            "Encode on torch's stream; with a queue of your own, let it wait for an event that the"
            " stream signals, and the stream for one of yours."
        ),
    ),
    Kind(
        name="stream_queue",
        about="host",
        title="The stream is used outside of its queue, or its queue waits for itself",
        meaning="extensions: the stream outside of its queue, a nested block, an exception in one",
        hint=(
            "Do all of it in one block: at::mps::dispatch_sync_with_rethrow(stream->queue(), ^{ ..."
            " }), which lets exceptions through; call nothing in it that does the same."
        ),
    ),
)

BY_NAME = {row.name: row for row in ROWS}
KINDS = tuple(BY_NAME)
RECORDED = tuple(row for row in ROWS if row.message is not None)
"""The kinds that the shadow runtime records; a row's place here is its value in `am_kind`."""


def hint_for(finding: Finding) -> str:
    """What usually mends a finding of its kind in its situation."""
    return BY_NAME[finding.kind].hint_for(finding)


def documentation() -> str:
    """The table of kinds in docs/checker.md."""
    rows = [f"| `{row.name}` | {row.meaning} |" for row in ROWS]
    return "\n".join(["| kind | what it is |", "|---|---|", *rows]) + "\n"
