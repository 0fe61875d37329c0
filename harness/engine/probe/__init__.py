"""Runs scripted scenarios on an engine inside one process, and records what each step reads and writes."""
