"""A GGUF file rewritten as a Hugging Face folder, without torch."""
