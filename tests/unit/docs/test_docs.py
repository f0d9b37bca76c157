"""What the pages name is there: commands, options, settings, paths, links, make targets, tables, metrics."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from bench.__main__ import BENCHMARKS, LONG
from pacehound import cli
from pacehound.runtime.metric_names import METRICS
from pacehound.settings import ENVIRONMENT_PREFIX, known_keys
from tests.fakes.for_every import for_every

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TOLD = [page for page in PAGES if "proofs" not in page.parts]
"""Proofs tell of a commit, and keep its words; their links and paths hold all the same."""

FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^|\n\n)((?: {4}[^\n]+(?:\n|\Z))+)")
INLINE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
OURS = re.compile(r"(?<![\w./=-])(?<!from )pacehound +(?=[a-z-])([^`;&]*)")
TOP_FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
VARIABLES = {ENVIRONMENT_PREFIX + key.replace(".", "_").upper() for key in known_keys()}

every_page = for_every({page.relative_to(ROOT).as_posix(): page for page in PAGES})
every_told_page = for_every({page.relative_to(ROOT).as_posix(): page for page in TOLD})


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@cache
def all_of(folder: str, pattern: str) -> str:
    """The text of all such files of a folder."""
    return "\n".join(map(text_of, sorted((ROOT / folder).rglob(pattern))))


def code_lines(text: str) -> Iterator[str]:
    """What a page sets as code: the lines of its blocks, and each inline piece on one line."""
    for block in FENCED.findall(text):
        yield from block.splitlines()
    rest = FENCED.sub("", text)
    for block in INDENTED.findall(rest):
        yield from block.splitlines()
    for piece in INLINE.findall(rest):
        yield " ".join(piece.split())


def named_commands(text: str) -> Iterator[list[str]]:
    """The words after `pacehound` wherever a page says what to type, without comments."""
    for line in code_lines(text):
        for found in OURS.findall(re.sub(r"\s+#.*", "", line)):
            try:
                words = shlex.split(found)
            except ValueError:  # a quote that is closed on another line
                words = found.split()
            yield words


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command of some words, and what is left of them; a list|show|replay is each of them."""
    context = click.Context(cli.pacehound)
    command = cli.pacehound.get_command(context, words[0])
    assert command is not None, f"there is no command {words[0]!r}"
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        commands = [command.commands.get(name) for name in rest[0].split("|")]
        assert None not in commands, f"there is no command {' '.join(words[:2])!r}"
        command, rest = commands[0] or command, rest[1:]
    return command, rest


def names(option: click.Option) -> list[str]:
    """Those that switch it on, and off."""
    return [*option.opts, *option.secondary_opts]


def check_options(command: click.Command, words: list[str]) -> None:
    """Every option is one of the command's, and every setting is known."""
    options = {name: one for one in command.params if isinstance(one, click.Option) for name in names(one)}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word == "--" or (command.name == "run" and not word.startswith("-")):
            return  # somebody else's command
        if not word.startswith("--"):
            continue
        name, _, value = word.partition("=")
        assert name in {*options, "--help"}, f"`pacehound {command.name}` has no option {name}"
        if name in options and not options[name].is_flag and not value and waiting:
            value = waiting.pop(0)
        if name == "--set" and "=" in value and value != "KEY=VALUE":
            assert value.partition("=")[0] in known_keys(), value


def all_commands() -> list[str]:
    """The names of all that are not hidden, of groups with each of theirs."""
    context = click.Context(cli.pacehound)
    names = []
    for name in cli.pacehound.list_commands(context):
        command = cli.pacehound.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            names += [f"{name} {inner}" for inner in command.commands]
        elif not command.hidden:
            names.append(name)
    return names


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@every_told_page
def test_every_command_and_option_that_a_page_names_exists(page: Path) -> None:
    for words in named_commands(text_of(page)):
        if re.fullmatch(r"[a-z][a-z-]*", words[0]):
            command, rest = command_of(words)
            check_options(command, rest)


@every_told_page
def test_every_option_that_stands_alone_is_one_of_ours(page: Path) -> None:
    context = click.Context(cli.pacehound)
    ours = {"--help", "--build", "--scale"}
    for name in all_commands():
        command, _ = command_of(name.split())
        spellings = (name for one in command.get_params(context) for name in (*one.opts, *one.secondary_opts))
        ours |= {name for name in spellings if name.startswith("--")}
    alone = {piece.split()[0] for piece in code_lines(text_of(page)) if piece.startswith("--")}
    assert {name.partition("=")[0] for name in alone} - ours - {"--", "--rdzv-id", "--installer"} == set()


def test_every_command_is_told_of_in_the_readme_or_a_page_of_docs() -> None:
    told = set()
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for words in named_commands(text_of(page)):
            told.add(words[0])
            told |= {f"{words[0]} {name}" for name in words[1].split("|")} if len(words) > 1 else set()
    assert [name for name in all_commands() if name not in told] == []


@every_page
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCED.sub("", text_of(page))):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        found = (page.parent / place).resolve() if place else page
        assert found.exists(), target
        assert found.is_relative_to(ROOT), target
        if anchor:
            headings = re.findall(r"^#+ (.*)", FENCED.sub("", text_of(found)), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, target


@every_page
def test_every_path_that_a_page_names_is_there(page: Path) -> None:
    text = text_of(page)
    named = {word for piece in code_lines(text) for word in re.findall(r"[\w./-]+", piece)}
    named |= set(re.findall(r"(?<![\w/])docs/[\w./-]+\.md", text))
    paths = {name for name in named if name.partition("/")[0] in TOP_FOLDERS and name.partition("/")[2]}
    ellipses = {path for path in paths if path.endswith(("_", "-"))}  # cut off at a word that is to be filled in
    assert [path for path in sorted(paths - ellipses) if not (ROOT / path.rstrip("./")).exists()] == []


@every_told_page
def test_every_setting_and_variable_that_a_page_names_exists(page: Path) -> None:
    components = {key.partition(".")[0] for key in known_keys()}
    named = rf"(?<![\w./-])(?:{'|'.join(components)})\.[a-z_]+(?![\w/]|\.\w)"
    for piece in code_lines(text_of(page)):
        for key in re.findall(named, piece):
            is_module = (ROOT / (key.replace(".", "/") + ".py")).exists()
            assert key in known_keys() or is_module or key.endswith((".py", ".md")), key
    for name in re.findall(r"(?<!_)PACEHOUND_[A-Z_]*[A-Z]", text_of(page)):  # with a _ before it, it is Click's
        assert name in VARIABLES or f'"{name}"' in all_of("pacehound", "*.py"), name


def test_every_setting_stands_in_the_table_with_its_default() -> None:
    rows = dict(re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|", text_of(ROOT / "docs/operating.md"), re.MULTILINE))
    table = {key: default for keys, default in rows.items() for key in re.findall(r"`([a-z_.]+)`", keys)}
    assert set(known_keys()) <= set(table)
    from pacehound.settings import Settings

    for key in known_keys():
        component, name = key.split(".")
        default = getattr(getattr(Settings(), component), name)
        said = table[key].strip("` ")
        if isinstance(default, str):
            assert said == (default or ("machine's" if key == "host.name" else "–")), key
        else:
            number, _, unit = said.partition(" ")
            assert float(number) * (2**20 if unit == "MiB" else 1) == default, key


@every_told_page
def test_every_make_target_module_and_extra_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    extras = set(PROJECT["project"]["optional-dependencies"])
    for line in code_lines(text_of(page)):
        said = re.sub(r"\s+#.*", "", line)
        for words in re.findall(r"^make((?: [a-z]+)+)", said):
            assert set(words.split()) <= targets, line
        for module, rest in re.findall(r"python -m ([\w.]+)((?: [a-z_]+)*)", said):
            assert importlib.util.find_spec(module) is not None, line
            if module == "bench":
                assert set(rest.split()) <= {*BENCHMARKS, *LONG}, line
        for names in re.findall(r"(?:pacehound|'\.)\[([a-z,]+)\]", said):
            assert set(names.split(",")) <= extras, line


@every_told_page
def test_every_table_and_metric_that_a_page_names_exists(page: Path) -> None:
    tables = set(re.findall(r"(?:TABLE|VIEW)(?: IF NOT EXISTS)? (\w+)", all_of("storage/migrations", "*.sql")))
    metrics = {metric.name for metric in METRICS}
    for piece in code_lines(text_of(page)):
        for table in re.findall(r"SELECT .* FROM (\w+)(?![\w.])", piece):
            assert table in tables, piece
        for metric in re.findall(r"\bpacehound_\w+_(?:total|seconds|messages|bytes)\b", piece):
            assert metric in metrics, metric


def test_the_checks_have_something_to_look_at() -> None:
    """Each of them would pass on an empty page."""
    words = [words for page in TOLD for words in named_commands(text_of(page))]
    assert len(words) > 60
    with pytest.raises(AssertionError, match="no option --nothing"):
        check_options(*command_of(["analyze", "dumps/", "--nothing"]))
    with pytest.raises(AssertionError, match="no command 'nobody'"):
        command_of(["nobody"])
    with pytest.raises(AssertionError, match=re.escape("hang.never")):
        check_options(*command_of(["run", "--set", "hang.never=1", "--", "torchrun", "--nothing"]))


def test_every_promise_names_tests_that_are_there():
    """`::name` alone is of the file named before it."""
    file, names = None, 0
    for path, name in re.findall(r"`(tests/[\w/]+\.py)?(?:::(\w+))?`", text_of(ROOT / "docs" / "promises.md")):
        file = ROOT / path if path else file
        if path:
            assert file.is_file(), path
        if name:
            names += 1
            assert f"def {name}(" in file.read_text(encoding="utf-8"), f"{file}: {name}"
    assert names >= 16
