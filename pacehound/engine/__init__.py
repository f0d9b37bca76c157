"""What the processes on Kafka share: the loop, the dead letters, and what they say of themselves."""
