"""The page: what the history says, for people. It reads; what whoever may answer says to a decision is handed over.

In: named queries of a history (a head's, or a ClickHouse server's). Out: JSON, a stream that says when there is
something new, and the files of the page itself.
Must not import collector, streams, storage, alerts, actuators or simulator.
"""
