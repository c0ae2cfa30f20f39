"""Reads dead-letter topics, and which of their messages were replayed or purged already.

Begin with `scan.py`.
"""
