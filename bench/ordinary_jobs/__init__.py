"""Ordinary training scripts, as people write them, for `bench.ordinary`: nothing in them knows of Pacehound.

Each is run by its path as a user's script is, so that none imports another; what it needs beyond torch is looked up
by `bench.ordinary` before it is started.
"""
