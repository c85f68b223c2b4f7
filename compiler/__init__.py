"""Manifest and topology in, frozen plan out. Imports plancc.ir only; never torch."""

if __name__ != "plancc.compiler":
    raise ImportError("the repository root is on sys.path: import plancc.compiler, not compiler")
