"""Joins that several checks share: answers across arms, tokens to engine steps, missing evidence to outcomes."""
