"""Task events on Redis Streams, for services in any language: the async task pattern's streams,
event schemas and consumer groups, whatever the engine is."""

from outlast.systems.streams.bridge import Bridge

__all__ = ["Bridge"]
