"""Dumps of PyTorch's Flight Recorder: one file per rank, as a pickle or as JSON."""
