"""Who is told of an incident: once per alert and state of it, also when this process is started again in between.

In: incidents, the orders of people (silences, acknowledgements). Out: notices to PagerDuty, Slack, e-mail, webhooks and
Alertmanager, and a notification of each.
Must not import collector, streams, storage, actuators or simulator.
"""
