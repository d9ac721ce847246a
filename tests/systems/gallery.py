"""The app of the media's tests, for worker processes."""

import os

from outlast import Outlast
from outlast.systems.media import Midjourney, Providers, media_generation

app = Outlast()
media_generation(app, Providers(Midjourney(os.environ["STUDIO"], "secret-mj", pace_s=0.02)))
