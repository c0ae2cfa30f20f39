"""Makes, changes and deletes topics: their names, settings and records in the catalog.

Begin with `topics.py`.
"""
