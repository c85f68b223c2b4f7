"""Kernels, each beside its plain reference. Imports no other room."""

if __name__ != "plancc.kernels":
    raise ImportError("the repository root is on sys.path: import plancc.kernels, not kernels")
