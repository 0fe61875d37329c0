"""Principle 1: the change touches only its own model and path."""
