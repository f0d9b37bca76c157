"""`python -m tests.hostile.fuzz DOOR FOLDER -runs=N …`: a fuzzer, led by coverage, at one door (needs `.[prove]`).

libFuzzer keeps what reaches new places in our code and changes it further; half of the changes are our own, which keep
the envelope of a message whole. An exception, an input that takes longer than `-timeout`, or memory beyond
`-rss_limit_mb` ends it with another status than 0, and the input lies in FOLDER as `crash-…`, `timeout-…` or `oom-…`.
"""

from __future__ import annotations

import logging
import random
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["pacehound", "collector", "streams", "storage", "actuators"]):
    from tests.hostile.doors import DOORS
    from tests.hostile.readers import READERS

SLOWEST_S = 30
"""The slowest input that was seen takes a second; the processors may be others' for most of the time."""
MOST_MEMORY_MIB = 2048
"""A pipeline with its libraries takes a quarter of this; a body may be 64 MiB, and is held decoded as well."""


def main(name: str, folder: Path, options: list[str]) -> None:
    """Until the budget of `options` is spent, or an input is found that the door does not stand."""
    logging.disable(logging.CRITICAL)
    door = (DOORS | READERS)[name]()
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, good in enumerate(door.good):
        (corpus / f"good-{number}").write_bytes(good)

    def changed(given: bytes, most_bytes: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if given and rng.random() < 0.5:
            return door.changed(given, rng)[:most_bytes]
        mutated: bytes = atheris.Mutate(given, most_bytes)
        return mutated

    longest = max(map(len, door.good))
    limits = [f"-timeout={SLOWEST_S}", f"-rss_limit_mb={MOST_MEMORY_MIB}", f"-max_len={max(2 * longest, 4096)}"]
    told = [f"-artifact_prefix={folder}/", "-print_final_stats=1", "-verbosity=1"]
    atheris.Setup([sys.argv[0], *limits, *told, *options, str(corpus)], door.take, custom_mutator=changed)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
