"""The version that plans record; pyproject.toml says the same (tested)."""

VERSION = "0.1.0"
