"""Readers of the step times that training jobs write into their own logs, one file per format."""
