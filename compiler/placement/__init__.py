"""Placement: plain problem in, proven shape out."""
