"""The list of metrics, and the page and the dashboard that are made after it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from spark_groupsource.metrics import progress
from spark_groupsource.metrics.definitions import METRICS, Kind
from spark_groupsource.metrics.server import PORT_PATIENCE_S
from tools.pages import with_metrics

ROOT = Path(__file__).parents[3]


PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


DASHBOARD = json.loads((ROOT / "conf" / "grafana-dashboard.json").read_text(encoding="utf-8"))


class TestTheList:
    def test_names_are_as_prometheus_has_them(self) -> None:
        assert len({metric.name for metric in METRICS}) == len(METRICS)
        for metric in METRICS:
            assert re.fullmatch(r"groupkafka(_[a-z]+)+", metric.name)
            assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
            assert metric.kind is not Kind.HISTOGRAM or metric.name.endswith("_seconds")
            assert metric.labels[0] == "group"
            assert metric.meaning.endswith(".")

    def test_the_page_has_its_table(self) -> None:
        assert with_metrics(PAGE) == PAGE, "run `make pages`"
        assert with_metrics(PAGE.replace(f"| `{METRICS[3].name}` |", "| `groupkafka_not_a_metric` |")) == PAGE

    def test_the_page_names_no_other_metric(self) -> None:
        assert named_in(PAGE) == {metric.name for metric in METRICS} | {progress.ROWS, progress.BYTES}

    def test_the_page_says_how_long_a_port_is_waited_for(self) -> None:
        text = " ".join(PAGE.split())
        assert f"after {PORT_PATIENCE_S:.0f} seconds" in text

    def test_the_dashboard_shows_no_metric_that_there_is_not(self) -> None:
        panels = DASHBOARD["panels"]
        expressions = [target["expr"] for panel in panels for target in panel.get("targets", [])]
        expressions += [one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
        shown = named_in("\n".join(expressions))
        assert len(shown) > 20
        assert shown <= {metric.name for metric in METRICS}


def named_in(text: str) -> set[str]:
    """Names of metrics, those of histograms without what Prometheus appends."""
    histograms = {metric.name for metric in METRICS if metric.kind is Kind.HISTOGRAM}
    found = set(re.findall(r"\bgroupkafka_[a-z_]+[a-z]\b", text))
    return {shorter if (shorter := re.sub("_(bucket|sum|count)$", "", name)) in histograms else name for name in found}
