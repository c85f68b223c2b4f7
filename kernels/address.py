"""Raw memory for CPU kernels: numbers at an address, stack scratch, atomics, calls by address.

A kernel gets addresses (int64), because one compiled function serves every layer of every model.
"""

import platform
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from llvmlite import ir
from numba import types

from plancc.kernels.compile import intrinsic

F32 = ir.FloatType()
I8 = ir.IntType(8)
I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
LINE_BYTES = 64

Emit = Callable[[ir.IRBuilder, list[ir.Value]], ir.Value | None]


def simple(signature: Any, emit: Emit) -> Callable[..., Any]:
    """An intrinsic of one fixed signature, its arguments converted to it."""

    def generate(context: Any, builder: ir.IRBuilder, _sig: Any, args: list[ir.Value]) -> Any:
        value = emit(builder, args)
        return context.get_dummy_value() if value is None else value

    def typing(_context: Any, *_args: Any) -> Any:
        return signature, generate

    # numba reads the number of arguments from the signature, and knows no intrinsic of *args.
    names = ["context", *(f"a{index}" for index in range(len(signature.args)))]
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    typing.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return intrinsic(typing)


def ints(count: int) -> tuple[Any, ...]:
    """The types of `count` int64 arguments."""
    return (types.int64,) * count


def pointer(b: ir.IRBuilder, address: ir.Value, element: ir.Type, index: ir.Value) -> ir.Value:
    """Pointer to element `index` of the elements at `address`."""
    return b.gep(b.inttoptr(address, element.as_pointer()), [index])


def call_llvm(b: ir.IRBuilder, name: str, result: ir.Type, args: list[ir.Value]) -> ir.Value:
    """Call a function of the process or of LLVM by name."""
    kind = ir.FunctionType(result, [value.type for value in args])
    return b.call(b.module.globals.get(name) or ir.Function(b.module, kind, name), args)


def by_address(result: Any, *arguments: Any) -> Callable[..., Any]:
    """An intrinsic (address, arguments) that calls the C function at the address."""
    native = {types.void: ir.VoidType(), types.float32: F32}[result]

    def emit(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value | None:
        kind = ir.FunctionType(native, [value.type for value in a[1:]])
        value = b.call(b.inttoptr(a[0], kind.as_pointer()), a[1:])
        return None if result is types.void else value

    return simple(result(types.int64, *arguments), emit)


def _loader(element: ir.Type, kind: Any) -> Callable[..., Any]:
    return simple(kind(*ints(2)), lambda b, a: b.load(pointer(b, a[0], element, a[1])))


def _emit_store(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    b.store(a[2], pointer(b, a[0], a[2].type, a[1]))


load_f32 = _loader(F32, types.float32)
load_f64 = _loader(ir.DoubleType(), types.float64)
load_i64 = _loader(I64, types.int64)
load_u16 = _loader(I16, types.uint16)
store_f32 = simple(types.void(*ints(2), types.float32), _emit_store)
store_u16 = simple(types.void(*ints(2), types.uint16), _emit_store)


def _scratch(_context: Any, count: Any) -> Any:
    """Address of `count` (a literal) float32 on the caller's stack, on a cache line."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    size = count.literal_value

    def generate(_c: Any, builder: ir.IRBuilder, _s: Any, _args: list[ir.Value]) -> ir.Value:
        with builder.goto_entry_block():
            place = builder.alloca(ir.ArrayType(F32, size))
            place.align = LINE_BYTES
        return builder.ptrtoint(place, I64)

    return types.int64(count), generate


scratch_f32 = intrinsic(_scratch)


def _emit_add(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    return b.atomic_rmw("add", pointer(b, a[0], I64, a[1]), a[2], "seq_cst")


def _emit_get(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    return b.load_atomic(pointer(b, a[0], I64, a[1]), "acquire", 8)


def _emit_put(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    b.store_atomic(a[2], pointer(b, a[0], I64, a[1]), "release", 8)


def _emit_swap_if(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    place = pointer(b, a[0], I64, I64(0))
    return b.extract_value(b.cmpxchg(place, a[1], a[2], "seq_cst", "seq_cst"), 1)


def _emit_pause(b: ir.IRBuilder, _a: list[ir.Value]) -> None:
    """Tell the core that this is a spin loop, where it has a word for that."""
    machine = platform.machine()
    if machine == "x86_64":
        call_llvm(b, "llvm.x86.sse2.pause", ir.VoidType(), [])
    elif machine in ("aarch64", "arm64"):
        call_llvm(b, "llvm.aarch64.hint", ir.VoidType(), [I32(1)])


def _emit_give_way(b: ir.IRBuilder, _a: list[ir.Value]) -> None:
    """Let another thread have the core: POSIX sched_yield."""
    call_llvm(b, "sched_yield", I32, [])


atomic_add = simple(types.int64(*ints(3)), _emit_add)
atomic_get = simple(types.int64(*ints(2)), _emit_get)
atomic_swap_if = simple(types.boolean(*ints(3)), _emit_swap_if)
"""atomic_swap_if(address, old, new): whether the int64 there was `old`; then it is `new`."""
atomic_put = simple(types.void(*ints(3)), _emit_put)
pause = simple(types.void(), _emit_pause)
give_way = simple(types.void(), _emit_give_way)
