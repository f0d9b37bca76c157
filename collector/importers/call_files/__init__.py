"""Readers of evidence that other tools have left on disk: each file becomes a `pacehound.model.call_file.CallFile`."""
