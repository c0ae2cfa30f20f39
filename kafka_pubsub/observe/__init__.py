"""Records of what the client decided and did, to be read from outside; the core never asks for them.

May import, beside top modules: `core.commit`.
"""
