-- Changes when something new is stored. These counts are read from the tables' own books, not by counting.
SELECT
    (SELECT count() FROM stored_iterations) AS iterations,
    (SELECT count() FROM stored_findings) AS findings,
    (SELECT count() FROM stored_incidents) AS incidents,
    (SELECT count() FROM stored_decisions) AS decisions,
    (SELECT count() FROM stored_topology) AS topology
