"""Plan in, tokens out. Imports plancc.ir and plancc.kernels only; it never decides."""

if __name__ != "plancc.executor":
    raise ImportError("the repository root is on sys.path: import plancc.executor, not executor")
