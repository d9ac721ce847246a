"""Outlast: durable tasks for AI applications."""

__version__ = "0.1.0"
