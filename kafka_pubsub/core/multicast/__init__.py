"""One order for messages to several topics: clocks, proposals and the order of release.

Begin with `sequencer.py`. May import, beside top modules: `core`.
"""
