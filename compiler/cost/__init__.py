"""Predicted time and memory; every formula is stated once, with its units."""
