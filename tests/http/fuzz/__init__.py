"""A server for Schemathesis, what it is told of it, and how it is run."""
