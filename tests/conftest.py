"""Settings for the whole suite."""

import os

from hypothesis import settings

# No deadline: a loaded machine is slow, not wrong. In CI a failure must come back on the next run.
settings.register_profile("here", deadline=None, max_examples=50)
settings.register_profile("ci", deadline=None, max_examples=200, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
