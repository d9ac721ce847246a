"""The worker, on real engines."""
