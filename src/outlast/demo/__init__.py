"""`outlast demo`: a show of a minute on the real system, and a judge of what was shown."""
