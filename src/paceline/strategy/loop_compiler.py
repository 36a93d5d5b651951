"""Loops (`spmd/loops.py`) as machine code, by LLVM.

llvmlite has LLVM in it, and gives it the text of a loop as it is: a loop is compiled in hundredths of a second, for
this processor, before the first step. LLVM changes no rounding unless an operation says that it may (`fast`), and none
does.
"""

import ctypes
import functools
import platform
from typing import Any

from paceline.spmd.loop_text import NAME, RUNNER, RUNNER_TEXT, llvm_of
from paceline.spmd.loops import Loop


@functools.cache
def why_not() -> str | None:
    """Why nothing can be compiled here; None: the runner, which every loop needs, has been compiled."""
    try:
        runner()
    except Exception as error:  # llvmlite is missing, does not load, or is too old: all of them have been seen
        return f"{type(error).__name__}: {error}"
    return None


@functools.cache
def compiled(loop: Loop) -> int:
    """The address of the loop's function; equal loops are compiled once."""
    return _address_of(llvm_of(loop, platform.machine()), NAME)


@functools.cache
def runner() -> Any:
    """A function of C that runs loops without Python's lock: see `loop_text.RUNNER_TEXT`."""
    return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(_address_of(RUNNER_TEXT, RUNNER))


def _address_of(text: str, name: str) -> int:
    """Compiles a module, and returns the address of one of its functions."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    module = llvm.parse_assembly(text)
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _engines.append(engine)
    return int(engine.get_function_address(name))


_engines: list[Any] = []
"""Code lives as long as its engine."""
