import sys
from pathlib import Path

# The strategies are a module of these tests, no package that anything else imports.
sys.path.insert(0, str(Path(__file__).parent))
