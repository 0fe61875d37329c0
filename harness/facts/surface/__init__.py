"""Settings: which ones code reads, tests set and documents name, and what holds when the switch is absent."""
