"""Reads, without running anything, what Python code does to things outside its own files."""
