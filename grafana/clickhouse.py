"""A named query of the store as a target of Grafana's ClickHouse plugin.

Parameters become expressions that Grafana fills in. Nothing that a job is called gets into SQL as text: variables
hold hexadecimal digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models.common import DataSourceRef

from storage.named_queries import named_query

SOURCE = DataSourceRef(type_val="grafana-clickhouse-datasource", uid="pacehound")

EXPRESSIONS = {
    "since_ns": "toUnixTimestamp64Nano(toDateTime64($__fromTime, 9))",
    "until_ns": "toUnixTimestamp64Nano(toDateTime64($__toTime, 9))",
    "interval_s": "greatest(toInt64($__interval_s), 1)",
    "job": "unhex('${job:raw}')",
    "attempt": "toInt32OrZero('${attempt:raw}')",
    "incident": "unhex('${incident:raw}')",
}
"""What stands for each parameter of a query."""

NOTHING = {"job": "''", "incident": "''"}
"""And where a dashboard is about all of them."""

_PARAMETER = re.compile(r"\{(\w+): *\w+\}")


class Target(Dataquery, Builder[Dataquery]):
    """A statement, as the plugin's editor writes it."""

    def __init__(self, sql: str, *, is_series: bool = False) -> None:
        self.sql = sql
        self.is_series = is_series
        self.ref_id = "A"

    def build(self) -> Dataquery:
        """Itself."""
        return self

    def to_json(self) -> dict[str, Any]:
        """As in a dashboard's JSON."""
        return {
            "refId": self.ref_id,
            "datasource": SOURCE,
            "editorType": "sql",
            "queryType": "timeseries" if self.is_series else "table",
            "format": 0 if self.is_series else 1,
            "rawSql": self.sql,
        }


def sql_of(name: str, *, of_all: Iterable[str] = (), moments: Iterable[str] = ()) -> str:
    """The SQL of a named query for Grafana.

    Parameters
    ----------
    name
        As in `storage/queries`.
    of_all
        Parameters that are left empty: the dashboard has no such variable.
    moments
        Columns in ns since 1970 that are shown as moments.

    """
    expressions = EXPRESSIONS | {one: NOTHING[one] for one in of_all}
    lines = [line for line in named_query(name).splitlines() if not line.startswith("--")]
    sql = _PARAMETER.sub(lambda found: expressions[found[1]], "\n".join(lines)).strip()
    shown = ", ".join(f"fromUnixTimestamp64Nano({one}, 'UTC') AS {one}" for one in moments)
    return f"SELECT * REPLACE ({shown})\nFROM\n(\n{sql}\n)" if shown else sql
