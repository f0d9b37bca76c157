"""The section on root causes: written once, in place of the one before, and kept by the page's other command."""

from bench import always_page
from bench.root_cause import run
from bench.root_cause_page import HEADING, later_sections, with_section
from simulator.suites.root_cause_jobs import SOURCES


def test_a_run_writes_a_row_per_source_into_the_page(tmp_path, monkeypatch):
    some = {name: SOURCES[name] for name in ("launch only", "counts only")}
    monkeypatch.setattr("bench.root_cause.SOURCES", some)
    page = tmp_path / "scoreboard.md"
    page.write_text("# Scoreboard\n\nbefore\n")
    rows = run(1, is_large=False, write_to=page)
    assert {row["case"] for row in rows} == set(some)
    assert {"must name", "named right", "innocent blamed"} <= {row["figure"] for row in rows}
    text = page.read_text()
    assert text.startswith("# Scoreboard\n\nbefore\n\n" + HEADING)
    assert all(f"| {source} |" in text for source in some)


def test_a_section_takes_the_place_of_the_one_before(tmp_path):
    first = with_section("# Scoreboard\n", HEADING + "old\n")
    assert with_section(first, HEADING + "new\n") == "# Scoreboard\n\n" + HEADING + "new\n"
    page = tmp_path / "scoreboard.md"
    page.write_text(first)
    assert later_sections(page) == "\n" + HEADING + "old\n"
    assert later_sections(tmp_path / "none.md") == ""


def test_what_other_commands_have_written_is_kept(tmp_path):
    page = tmp_path / "scoreboard.md"
    page.write_text(
        always_page.with_section(with_section("# Scoreboard\n", HEADING + "old\n"), always_page.HEADING + "x\n")
    )
    kept = later_sections(page)
    assert kept.index(always_page.HEADING + "x\n") < kept.index(HEADING + "old\n")
