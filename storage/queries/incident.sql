-- All versions of the incidents whose id starts with `id`, newest version first.
SELECT id, job, version, state, time_ns, event
FROM incidents
WHERE startsWith(id, {id:String})
ORDER BY id, version DESC
