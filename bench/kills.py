"""`python -m bench.kills`: a hundred kills at every step of every protocol to the ranks; prints a page of docs/proofs.

Who gives the order, the head, an agent, a process that measures, or a rank is killed with -9 while real ranks are held,
measured, or given an order to their scripts. Afterwards the job must go on, or end as it would have; nobody may have
stood still for longer than docs/commands.md says; no rank may have applied what another one did not; and what the ranks
add up together must be what an undisturbed job adds up. It exits with 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.rig import realjob
from bench.rig.kills.field import Field
from bench.rig.kills.strikes import SLACK_S, STEPS, Kill, Protocol, Struck, Victim, strike
from pacehound.instrument import hold

OF_ALL: tuple[Victim, ...] = ("controller", "head", "agent", "rank")


def kills(seed: int) -> list[Kill]:
    """Each victim at each step of each protocol."""
    found = []
    for protocol, steps in STEPS.items():
        for step in steps:
            victims = (*OF_ALL, "worker") if protocol == "validation" and step != "over" else OF_ALL
            found += [Kill(protocol, step, victim, seed) for victim in victims]
    return found


def lanes(rounds: int) -> dict[str, list[Kill]]:
    """Who is killed on which job; they run beside each other, for most of the time is spent waiting.

    Orders to scripts are given to ranks that agree by themselves, on two hosts, and to ranks of one host that do not.
    """
    found: dict[str, list[Kill]] = {"hold": [], "measure": [], "alone": []}
    for seed in range(rounds):
        for one in kills(seed):
            lane: dict[Protocol, str] = {"hold": "hold", "validation": "measure"}
            found[lane.get(one.protocol, "hold" if seed % 2 else "alone")].append(one)
    return found


def run(folder: Path, rounds: int, say: Callable[[str], object], among: Iterable[str] = ()) -> list[Struck]:
    """Strike, and say so; those of `among` alone, where it names lanes."""
    hold.build()
    struck: list[Struck] = []
    failed: list[BaseException] = []

    def work(name: str, todo: list[Kill]) -> None:
        field = Field(folder / name, together=name != "alone")
        try:
            field.hosts.start_head()
            field.begin()
            for one in todo:
                began_s = time.monotonic()
                struck.append(found := strike(field, one))
                took_s = time.monotonic() - began_s
                say(f"{_words(found)} ({took_s:.0f} s)")
            field.end()
        except BaseException as error:  # it is raised where the others can be waited for
            failed.append(error)
            say(f"{name}: {error}\n{field.printed()}")
        finally:
            field.hosts.stop()

    threads = [
        threading.Thread(target=work, args=(name, todo))
        for name, todo in lanes(rounds).items()
        if not among or name in among
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return struck


def _words(one: Struck) -> str:
    what = f"{one.kill.protocol}, {one.step}: {one.kill.victim} killed"
    return f"{what}; {one.became}; a rank stood still for {one.stood_still_s:.1f} s" + (
        f"  WRONG: {one.wrong}" if one.wrong else ""
    )


def page(struck: list[Struck], seconds: float) -> str:
    """As it stands in docs/proofs."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=realjob.REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.strip()
    wrong = [one for one in struck if one.wrong]
    words = (__doc__ or "").split("\n\n", 1)[1].strip().removesuffix(" It exits with 1 where anything is wrong.")
    lines = [
        "# A hundred kills while ranks are commanded",
        "",
        *words.splitlines(),
        "",
        "    python -m bench.kills",
        "",
        f"({time.strftime('%Y-%m-%d', time.gmtime())}, {seconds / 60:.0f} minutes, Python "
        f"{sys.version.split()[0]}, at commit {commit}.)",
        "",
        f"{len(struck)} kills; {len(struck) - len(wrong)} as promised. The step is the one that was under way. How",
        "long a rank stood still is the longest time between two of its steps afterwards; processes that wait for a",
        f"processor are given {SLACK_S:g} s more than was promised. A measurement that comes to its end all the",
        "same may hold for its budget.",
        "",
        "| protocol | at step | killed | kills | as promised | jobs | longest stand, s | promised, s |",
        "|---|---|---|--:|--:|---|--:|--:|",
    ]
    groups: dict[tuple[str, str, Victim], list[Struck]] = {}
    for one in sorted(struck, key=lambda one: (one.kill.protocol, list(STEPS[one.kill.protocol]).index(one.kill.step))):
        groups.setdefault((one.kill.protocol, one.step, one.kill.victim), []).append(one)
    for (protocol, step, victim), ones in groups.items():
        right = sum(not one.wrong for one in ones)
        lasting = [one for one in ones if one.became != "ended"]
        n_ended, n_applied = len(ones) - len(lasting), sum(one.became == "applied" for one in ones)
        counts = {"went on": len(lasting), "ended": n_ended, "applied the order": n_applied}
        became = ", ".join(f"{n} {what}" for what, n in counts.items() if n)
        stood = f"{max(one.stood_still_s for one in lasting):.1f}" if lasting else ""
        most = f"{max(one.at_most_s for one in lasting):g}" if lasting else ""
        lines.append(f"| {protocol} | {step} | {victim} | {len(ones)} | {right} | {became} | {stood} | {most} |")
    lines += ["", *(f"- wrong: {_words(one)}" for one in wrong)]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.kills", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="of 51 kills each")
    parser.add_argument("--only", action="append", default=[], choices=list(lanes(1)), help="one of the jobs")
    parser.add_argument("--page", type=Path, help="write it to this file")
    options = parser.parse_args()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pacehound-kills-") as scratch:
        say = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731
        struck = run(Path(scratch), options.rounds, say, options.only)
    text = page(struck, time.monotonic() - began_s)
    if options.page:
        options.page.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 1 if any(one.wrong for one in struck) else 0


if __name__ == "__main__":
    sys.exit(main())
