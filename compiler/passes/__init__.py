"""Graph passes, one a file; `compiler/pipeline.py` lists them."""
