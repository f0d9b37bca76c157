"""The page: what the history says, for people. It reads, and changes nothing.

In: named queries of a history (a head's, or a ClickHouse server's). Out: JSON, a stream that says when there is
something new, and the files of the page itself.
Must not import collector, streams, storage, alerts, actuators or simulator.
"""
