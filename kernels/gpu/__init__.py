"""Triton kernels: one family a file, with its launcher and what it promises. See README.md."""
