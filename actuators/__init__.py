"""What is done about an incident: decided first, with a price and a reason, and only then acted upon.

In: incidents, and what agents have answered. Out: decisions, and orders to agents.
Must not import collector, streams, storage, alerts or simulator.
"""
