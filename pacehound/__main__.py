"""`python -m pacehound`, and the path by which `pacehound run` starts its helpers."""

import sys
from pathlib import Path

# Started by path, nothing has told Python yet where the package lies.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pacehound.cli import main

if __name__ == "__main__":
    main()
