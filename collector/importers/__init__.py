"""Files that other tools have left, read without trust.

In: Flight Recorder dumps, Inspector and RAS logs, Kineto traces, scrapes of xpu_timer, step logs.
Out: call files, step logs, operations.
Must not import the agent, the calls or the host's rooms.
"""
