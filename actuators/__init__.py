"""What is done about an incident: decided first, with a price and a reason, and only then acted upon.

In: incidents. Out: decisions.
Must not import collector, streams, storage, alerts or simulator.
"""
