"""Who is told of an incident: once per state of it, also when this process is started again in between.

In: incidents. Out: notices to webhooks and Alertmanager, and a notification of each.
Must not import collector, streams, storage, actuators or simulator.
"""
