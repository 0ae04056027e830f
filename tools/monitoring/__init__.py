"""Dashboards for Grafana and alert rules for Prometheus, generated into conf/, and a Prometheus that proves them.

`python -m tools.monitoring --write` writes conf/grafana/*.json, conf/prometheus/quire.rules.yml and
conf/prometheus/prometheus.yml. scripts/check compares them.
"""
