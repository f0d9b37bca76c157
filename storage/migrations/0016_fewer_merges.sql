-- Parts of what is written every few seconds are merged 32 at a time. To the engine all parts below 5 MB are as large
-- as each other, and five or six of them worth a merge: so all that had come before was written again with each sixth
-- insert. Of a job of 16,384 ranks that took half of the writer's processor time (docs/adr/0070-merged-many-at-a-time.md).

ALTER TABLE stored_calls MODIFY SETTING min_parts_to_merge_at_once = 32;
ALTER TABLE stored_call_minutes MODIFY SETTING min_parts_to_merge_at_once = 32;
ALTER TABLE stored_batches MODIFY SETTING min_parts_to_merge_at_once = 32;
ALTER TABLE stored_host_samples MODIFY SETTING min_parts_to_merge_at_once = 32;
ALTER TABLE stored_host_vitals MODIFY SETTING min_parts_to_merge_at_once = 32;
ALTER TABLE stored_markers MODIFY SETTING min_parts_to_merge_at_once = 32;
