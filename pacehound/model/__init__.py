"""The shared vocabulary: calls, events, rounds, topology, ids, topics, and the codec between them and bytes.

In: values and bytes. Out: values and bytes; no clock, no socket, no file.
Must not import anything of Pacehound but `pacehound.errors` and `pacehound.settings`.
"""
