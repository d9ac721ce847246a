"""The pure core: values and decisions, without I/O, engine, event loop or (but for `ids`) clock."""
