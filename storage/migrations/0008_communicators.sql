-- Who is in which communicator, one row each. Where a host knew its own ranks' places alone, its row of `topology` has -1
-- for the others; all hosts together know all. A row of `calls` whose peer is below -1 names a place: its rank is
-- `members[-1 - peer]`.
CREATE OR REPLACE VIEW communicators AS
SELECT
    job,
    attempt,
    communicator,
    any(name) AS name,
    any(backend) AS backend,
    max(is_world) AS is_world,
    arrayDistinct(groupArray(host)) AS hosts,
    maxForEach(members) AS members,
    min(time_ns) AS time_ns
FROM topology
GROUP BY job, attempt, communicator;
