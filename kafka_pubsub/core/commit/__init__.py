"""What is finished, and what may be committed: positions, maps, checkpoints.

Begin with `offsets.py`, then `commits.py`.
"""
