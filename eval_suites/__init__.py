"""Evaluation suites that a served arm is put through; each is a pure list of requests."""
