"""The bundle stays as it is."""
