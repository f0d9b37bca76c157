"""`python -m grafana`: write the dashboards."""

from grafana.written import written

for path, content in written().items():
    path.write_text(content, encoding="utf-8")
