-- A part that was merged into another is kept for a minute, not for eight: of a job that is written every two seconds
-- most of the disk was such parts. The server keeps them so long lest a power failure loses what was merged and is not
-- on disk yet; here it is on disk first.

ALTER TABLE stored_calls MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_batches MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_topology MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_host_samples MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_markers MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_iterations MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_changepoints MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_group_outliers MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_findings MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_incidents MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_decisions MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_notifications MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_dead_letters MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_host_vitals MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_host_evidence MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_cuts MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_call_minutes MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_incident_calls MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_incident_windows MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_prices MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
ALTER TABLE stored_operations MODIFY SETTING old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;
