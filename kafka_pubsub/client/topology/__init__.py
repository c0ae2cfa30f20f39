"""The topics of delayed delivery as code: declared once, compared with a cluster, applied, rendered for other tools.

Begin with `declaration.py`.
May import, beside top modules: `core.delays`.
"""
