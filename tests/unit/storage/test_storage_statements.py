"""The guard for SQL that somebody else wrote."""

import pytest

from pacehound.errors import InvalidInput
from storage.statements import only_reads


@pytest.mark.parametrize(
    ("sql", "statement"),
    [
        ("SELECT 1", "SELECT 1"),
        ("  select count() from calls ;\n", "  select count() from calls"),
        ("WITH 1 AS x SELECT x", "WITH 1 AS x SELECT x"),
        ("SHOW TABLES", "SHOW TABLES"),
        ("DESCRIBE calls", "DESCRIBE calls"),
        ("EXPLAIN SELECT 1", "EXPLAIN SELECT 1"),
        ("(SELECT 1) UNION ALL (SELECT 2)", "(SELECT 1) UNION ALL (SELECT 2)"),
        ("SELECT 'a;b'", "SELECT 'a;b'"),
        ("SELECT 'into outfile'", "SELECT 'into outfile'"),
        ("SELECT 'it''s; so'", "SELECT 'it''s; so'"),
        (r"SELECT 'it\'s; so'", r"SELECT 'it\'s; so'"),
        ("SELECT 1 -- why; not", "SELECT 1"),
        ("/* ; */ SELECT 1", "/* ; */ SELECT 1"),
        ("SELECT format('{}', job) FROM incidents", "SELECT format('{}', job) FROM incidents"),
    ],
)
def test_a_question_is_passed_on_without_its_semicolon(sql, statement):
    assert only_reads(sql) == statement


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("", "no SQL"),
        (" ; -- nothing", "no SQL"),
        ("INSERT INTO calls SELECT 1", "INSERT"),
        ("drop table calls", "DROP"),
        ("SET readonly = 0", "SET"),
        ("USE default", "USE"),
        ("KILL QUERY WHERE 1", "KILL"),
        ("SYSTEM FLUSH LOGS", "SYSTEM"),
        ("/* SELECT */ ALTER TABLE calls DELETE WHERE 1", "ALTER"),
        ("SELECT 1; DROP TABLE calls", "more than one"),
        ("SELECT 1 INTO  OUTFILE 'x'", "INTO OUTFILE"),
        ("SELECT 1 FORMAT JSON", "FORMAT"),
        ("42", "42"),
        ("SHOW USERS", "of SHOW only"),
        ("show/**/processlist", "of SHOW only"),
        ("SELECT $$'$$; DESCRIBE file('x'); SELECT $$'$$", "outside quotes"),
        ("SELECT $a$'$a$; DESCRIBE file('x'); SELECT $a$'$a$", "outside quotes"),
        ("SELECT ‘'’; DESCRIBE file('x'); SELECT ‘'’", "outside quotes"),
    ],
)
def test_what_is_no_question_is_refused_and_the_message_names_it(sql, word):
    with pytest.raises(InvalidInput, match=word):
        only_reads(sql)
