"""The worker: takes turns with the engine, runs attempts, hands back their outcomes."""

from outlast.worker.worker import Worker

__all__ = ["Worker"]
