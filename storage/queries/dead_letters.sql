-- What could not be processed, and why; newest first.
SELECT source_topic, partition, offset, job, error, reason, time_ns, payload_hex
FROM dead_letters
ORDER BY time_ns DESC, source_topic, partition, offset
