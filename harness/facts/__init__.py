"""Adapters that read the world: git, the machine, python packages."""
