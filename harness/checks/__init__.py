"""Checks: one testable claim a module; `all_checks` finds them."""
