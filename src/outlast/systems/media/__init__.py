"""Media that outlast the page that asked for them: providers, their limits, what they made."""

from outlast.systems.media.generation import Media, media_generation
from outlast.systems.media.providers import Local, Order, Preview, Provider, Providers, State
from outlast.systems.media.studios import Leonardo, Midjourney

__all__ = [
    "Leonardo",
    "Local",
    "Media",
    "Midjourney",
    "Order",
    "Preview",
    "Provider",
    "Providers",
    "State",
    "media_generation",
]
