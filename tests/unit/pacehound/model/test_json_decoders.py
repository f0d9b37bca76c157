"""Any number of threads may read the first events of a process at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from events import one_of_each

from pacehound.model import codec

READERS = """
import sys, threading
from pathlib import Path
from pacehound.model import codec

messages = [path.read_bytes() for path in sorted(Path(sys.argv[1]).iterdir())]
sys.setswitchinterval(1e-5)
together, failed = threading.Barrier(4), []

def read():
    for message in messages:
        together.wait()
        try:
            codec.decode(message)
        except Exception as error:
            failed.append(repr(error))

readers = [threading.Thread(target=read) for _ in range(together.parties)]
for reader in readers:
    reader.start()
for reader in readers:
    reader.join()
sys.exit("; ".join(failed[:3]) or None)
"""


def test_threads_that_read_the_first_event_of_a_kind_at_the_same_moment_both_read_it(tmp_path: Path) -> None:
    """A class that one thread was being told of, and another used, ended the process in two of three runs of this."""
    for number, event in enumerate(one_of_each()):
        (tmp_path / f"{number:03}").write_bytes(codec.encode(event))
    for _ in range(5):
        ended = subprocess.run(
            [sys.executable, "-c", READERS, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert ended.returncode == 0, (ended.returncode, ended.stderr[-500:])
