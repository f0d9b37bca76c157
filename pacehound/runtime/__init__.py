"""What our own processes share: the event loop, dead letters, telemetry, health, and the embedded head.

In: messages of a bus. Out: messages, commits, metrics.
Must not import the pages, the command line, the launcher or any of the other packages; `embedded` alone meets them all.
"""
