"""Dashboards as code: one file each. `python -m grafana` writes their JSON to `provisioning/dashboards`.

Their SQL is that of `storage/queries`, with Grafana's macros where the queries have parameters.
"""
