"""The words that compiler and executor share. Imports nothing of ours and no torch."""

if __name__ != "plancc.ir":
    raise ImportError("the repository root is on sys.path: import plancc.ir, not ir")
