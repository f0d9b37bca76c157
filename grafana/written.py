"""The JSON of all dashboards, as it is committed."""

from __future__ import annotations

import json
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana.fleet import fleet
from grafana.health import health
from grafana.incident import incident
from grafana.job import job

FOLDER = Path(__file__).parent / "provisioning" / "dashboards"


def written() -> dict[Path, str]:
    """What stands in which file."""
    made = {"fleet": fleet(), "job": job(), "incident": incident(), "health": health()}
    return {
        FOLDER / f"{name}.json": json.dumps(one.build(), cls=JSONEncoder, indent=2, ensure_ascii=False) + "\n"
        for name, one in made.items()
    }
