"""A loop (`loops.py`) as a function in LLVM's language. Pure."""

from paceline.spmd.loops import ALIGNMENT, FLOATS, STEPS, Kind, Loop

_STREAMED = 1 << 20
"""Bytes. New values of more are written past the caches (non-temporal stores): an ordinary store would first read what
it writes over, and push out what others need."""

NAME = "paceline_loop"
"""What the compiled function is called."""

_FLUSHING = {
    "x86_64": (
        ["declare void @llvm.x86.sse.stmxcsr(ptr)", "declare void @llvm.x86.sse.ldmxcsr(ptr)"],
        [
            "%before = alloca i32",
            "%within = alloca i32",
            "call void @llvm.x86.sse.stmxcsr(ptr %before)",
            "%mode = load i32, ptr %before",
            "%flushing = or i32 %mode, 32832",
            "store i32 %flushing, ptr %within",
            "call void @llvm.x86.sse.ldmxcsr(ptr %within)",
        ],
        ["call void @llvm.x86.sse.ldmxcsr(ptr %before)"],
    ),
}
"""For a processor: what is declared, what comes before a loop, and what comes behind it.

TensorFlow takes denormal numbers for zeros on all of its threads (FTZ and DAZ of MXCSR: bits 15 and 6, 32832). A loop
may run on others.
"""

PROCESSORS = tuple(_FLUSHING)
"""Those whose loops have been compared with TensorFlow's operations. On ARM, `Maximum` takes what is no number."""


def llvm_of(loop: Loop, processor: str) -> str:
    """The loop in LLVM's language, as a function of `(first entry, last entry + 1, is streamed, addresses)`.

    The addresses are those of the numbers, the vectors, the variables that are read, and the new values of those that
    are written; all arrays lie apart. Three loops follow each other: the last one takes what is left by one that takes
    as many entries as `ALIGNMENT` bytes have, and writes past the caches or, if not `is streamed`, into them.

    Args:
        loop: What is computed.
        processor: As `platform.machine()` says it.
    """
    declarations, begin, end = _FLUSHING.get(processor, ([], [], []))
    one = Kind("float" if loop.dtype == "float32" else "double")
    several = Kind(one.entry, ALIGNMENT // FLOATS[loop.dtype])
    text = [
        f"declare {kind.name} @llvm.{name}.{kind.suffix}({kind.name})" for kind in (one, several) for name in _CALLED
    ]
    text += declarations
    for name, kind, is_streamed in (("streamed", several, True), ("wide", several, False), ("narrow", one, False)):
        text += _function(loop, name, kind, is_streamed=is_streamed)
    arguments = _arguments(loop, one)
    opened, passed = [], []
    for index, (sort, name) in enumerate(arguments):
        opened.append(f"%p{index}.at = getelementptr ptr, ptr %table, i64 {index}")
        opened.append(f"%p{index}.to = load ptr, ptr %p{index}.at")
        if sort == "ptr":
            passed.append(f"ptr %p{index}.to")
        elif sort == "i1":
            opened += [f"%p{index}.byte = load i8, ptr %p{index}.to", f"{name} = icmp ne i8 %p{index}.byte, 0"]
            passed.append(f"i1 {name}")
        else:
            opened.append(f"{name} = load {sort}, ptr %p{index}.to")
            passed.append(f"{sort} {name}")
    rest = ", ".join(passed)
    text += [
        f"define void @{NAME}(i64 %begin, i64 %end, i1 zeroext %streamed, ptr %table) {{",
        *opened,
        "%length = sub i64 %end, %begin",
        f"%short = srem i64 %length, {several.width}",
        "%middle = sub i64 %end, %short",
        *begin,
        "br i1 %streamed, label %past, label %into",
        "past:",
        f"call void @{NAME}_streamed(i64 %begin, i64 %middle, {rest})",
        "fence seq_cst",  # what is written past the caches is not in order without
        "br label %last",
        "into:",
        f"call void @{NAME}_wide(i64 %begin, i64 %middle, {rest})",
        "br label %last",
        "last:",
        f"call void @{NAME}_narrow(i64 %middle, i64 %end, {rest})",
        *end,
        "ret void",
        "}",
        "!0 = !{i32 1}",
    ]
    return "\n".join(text) + "\n"


RUNNER = "paceline_run"

RUNNER_TEXT = f"""
define void @{RUNNER}(i64 %count, ptr %records) {{
entry:
  %any = icmp slt i64 0, %count
  br i1 %any, label %turn, label %done
turn:
  %i = phi i64 [ 0, %entry ], [ %next, %turn ]
  %record = getelementptr [5 x i64], ptr %records, i64 %i
  %loop.word = load i64, ptr %record
  %begin.at = getelementptr i64, ptr %record, i64 1
  %begin = load i64, ptr %begin.at
  %end.at = getelementptr i64, ptr %record, i64 2
  %end = load i64, ptr %end.at
  %streamed.at = getelementptr i64, ptr %record, i64 3
  %streamed.word = load i64, ptr %streamed.at
  %table.at = getelementptr i64, ptr %record, i64 4
  %table.word = load i64, ptr %table.at
  %loop = inttoptr i64 %loop.word to ptr
  %streamed = icmp ne i64 %streamed.word, 0
  %table = inttoptr i64 %table.word to ptr
  call void %loop(i64 %begin, i64 %end, i1 zeroext %streamed, ptr %table)
  %next = add nuw nsw i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %turn, label %done
done:
  ret void
}}
"""
"""A function of `(number of records, records)` that runs loops one after the other, without Python in between.

A record is five words: the address of a loop's function, and its four arguments.
"""

_CALLED = ("sqrt", "fabs")


def is_streamed(loop: Loop, num_entries: int) -> bool:
    """Whether a loop over arrays of so many entries writes past the caches."""
    return num_entries * FLOATS[loop.dtype] >= _STREAMED


def _arguments(loop: Loop, kind: Kind) -> list[tuple[str, str]]:
    """The types and names of what a loop is given."""
    arrays = [f"%v{index}" for index in range(loop.num_vectors)]
    arrays += [f"%o{index}" for index in loop.read]
    arrays += [f"%w{index}" for index in loop.written]
    numbers = [("i1" if is_bool else kind.entry, f"%n{index}") for index, is_bool in enumerate(loop.numbers)]
    return [*numbers, *(("ptr", name) for name in arrays)]


def _function(loop: Loop, name: str, kind: Kind, *, is_streamed: bool) -> list[str]:
    """A loop that takes some entries at once."""
    arguments = [f"{sort} noalias {one}" if sort == "ptr" else f"{sort} {one}" for sort, one in _arguments(loop, kind)]
    spread = []
    for index, is_bool in enumerate(loop.numbers if kind.width > 1 else ()):
        entry = "i1" if is_bool else kind.entry
        spread += [
            f"%n{index}.one = insertelement {kind.of(entry)} poison, {entry} %n{index}, i64 0",
            f"%n{index}.all = shufflevector {kind.of(entry)} %n{index}.one, {kind.of(entry)} poison, "
            f"{kind.of('i32')} zeroinitializer",
        ]
    return [
        # Not inlined: no line may leave the mode of the processor.
        f"define internal void @{NAME}_{name}(i64 %begin, i64 %end, {', '.join(arguments)}) noinline {{",
        "entry:",
        *spread,
        "%any = icmp slt i64 %begin, %end",
        "br i1 %any, label %turn, label %done",
        "turn:",
        "%i = phi i64 [ %begin, %entry ], [ %next, %turn ]",
        *_turn(loop, kind, is_streamed=is_streamed),
        f"%next = add nuw nsw i64 %i, {kind.width}",
        "%more = icmp slt i64 %next, %end",
        "br i1 %more, label %turn, label %done",
        "done:",
        "ret void",
        "}",
    ]


def _turn(loop: Loop, kind: Kind, *, is_streamed: bool) -> list[str]:
    """The lines of one turn."""
    written: list[str] = []
    names: list[str] = []
    now: dict[int, str] = {}
    size = FLOATS[loop.dtype]

    def loaded(array: str, name: str) -> str:
        written.append(f"{name}.at = getelementptr {kind.entry}, ptr {array}, i64 %i")
        written.append(f"{name} = load {kind.name}, ptr {name}.at, align {size}")
        return name

    for index, line in enumerate(loop.lines):
        name = f"%x{index}"
        if line.what == "number":
            name = f"%n{line.args[0]}" if kind.width == 1 else f"%n{line.args[0]}.all"
        elif line.what == "vector":
            name = loaded(f"%v{line.args[0]}", name)
        elif line.what == "read":
            if line.args[0] not in now:
                now[line.args[0]] = loaded(f"%o{line.args[0]}", name)
            name = now[line.args[0]]
        elif line.what == "assign":
            name = now[line.args[0]] = names[line.args[1]]
        else:
            written += STEPS[line.what].write(kind, name, [names[arg] for arg in line.args])
        names.append(name)
    for variable in loop.written:
        written.append(f"%w{variable}.at = getelementptr {kind.entry}, ptr %w{variable}, i64 %i")
        how = f"align {size * kind.width}" + (", !nontemporal !0" if is_streamed else "")
        written.append(f"store {kind.name} {now[variable]}, ptr %w{variable}.at, {how}")
    return written
