"""Pacehound: the shared vocabulary and the front door.

Importing this package is cheap and needs the standard library alone, because it happens inside other
people's training processes (`pacehound.instrument`).
"""

__version__ = "0.2.0"
