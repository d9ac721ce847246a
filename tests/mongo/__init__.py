"""Tests of the MongoDB engine alone."""
