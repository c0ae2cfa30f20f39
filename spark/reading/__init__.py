"""Reads topics as rows, and decodes bodies."""
