"""What holds for every test."""

from hypothesis import settings

# A test states a law about results; how long an example takes on a loaded machine is none.
settings.register_profile("fasttrack", deadline=None)
settings.load_profile("fasttrack")
