"""From what ranks write into shared memory to calls: rows, open calls and progress.

In: records of rings, probing frames. Out: CallBatch, Progress, Topology, Operations.
Must not import the agent, the host's rooms or the importers.
"""
