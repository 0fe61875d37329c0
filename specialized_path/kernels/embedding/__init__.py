"""Rows of a shard of the vocabulary: OC-1."""
