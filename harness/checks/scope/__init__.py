"""Principle 2: the scope is bounded and the features of its users are intact."""
