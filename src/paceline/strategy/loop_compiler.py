"""Loops (`spmd/loops.py`) as machine code, by LLVM.

llvmlite has LLVM in it, and gives it the text of a loop as it is: a loop is compiled in hundredths of a second, for
this processor, before the first step. LLVM works on several entries at once where the processor can; without leave to
(`fast` in its language) it changes no rounding.
"""

import ctypes
import functools
import importlib.util
import platform
from typing import Any

from paceline.spmd.loops import NAME, Loop, llvm_of

Compiled = Any
"""A function of C: `(first entry, last entry + 1, is streamed, table of addresses)`. It runs without Python's lock."""


def is_available() -> bool:
    """Whether llvmlite is installed."""
    return importlib.util.find_spec("llvmlite") is not None


@functools.cache
def compiled(loop: Loop) -> Compiled:
    """The loop as a function; equal loops are compiled once."""
    import llvmlite.binding as llvm

    machine, options = _target()
    module = llvm.parse_assembly(llvm_of(loop, platform.machine()))
    module.verify()
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_bool, ctypes.c_void_p)(
        engine.get_function_address(NAME)
    )
    _engines.append(engine)
    return function


def _target() -> tuple[Any, Any]:
    """What code is made for, and how: a machine belongs to the one engine that it is given to."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    options.loop_interleaving = True
    return machine, options


_engines: list[Any] = []
"""Code lives as long as its engine."""
