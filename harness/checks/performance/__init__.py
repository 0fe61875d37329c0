"""Principle 4: faster across the board, measured fairly."""
