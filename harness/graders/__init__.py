"""Scoring rules of the evaluation suites: pure functions from an answer's text to its score."""
