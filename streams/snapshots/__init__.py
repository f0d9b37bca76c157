"""The state of operators as bytes that are data and nothing else.

In: operators. Out: bytes with a schema version first, and operators again.
May import every room that has state: `rounds`, `level`, `slow`, `hang`, `whatif` and `job`; must not import Kafka.
"""
