"""The shipped rules: promtool takes them, they fire when they should, and a real Prometheus notices a watch that died."""

import re
import subprocess
from datetime import timedelta
from importlib import resources

import pytest

from stormpetrel.watch.metrics import WatchMetrics
from stormpetrel.watch.notify.outbox import OutboxStep
from tests.parts import find_program, require, wait_until
from tests.parts.alarm_jobs import at
from tests.parts.post_box import PostBox
from tests.parts.prometheus import RealPrometheus

RULES = resources.files("stormpetrel.watch").joinpath("rules", "stormpetrel.yml").read_text("utf-8")

CASES = """
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - {series: 'stormpetrel_watch_heartbeat_timestamp_seconds{instance="a"}', values: '0+60x30 _x30'}
  - {series: 'stormpetrel_source_up{source="slurm", instance="a"}', values: '1x9 0x51'}
  - {series: 'stormpetrel_messages_oldest_waiting_seconds{instance="a"}', values: '0x9 0+60x51'}
  - {series: 'stormpetrel_messages_given_up{instance="a"}', values: '3x49 4x11'}
  alert_rule_test:
  - {eval_time: 29m, alertname: StormpetrelWatchGone}
  - {eval_time: 20m, alertname: StormpetrelSourceLag}
  - {eval_time: 40m, alertname: StormpetrelMessagesUndelivered}
  - {eval_time: 29m, alertname: StormpetrelWatchStuck}
  - {eval_time: 49m, alertname: StormpetrelMessagesGivenUp}
- interval: 1m
  input_series:
  - {series: 'stormpetrel_watch_heartbeat_timestamp_seconds{instance="a"}', values: '0x60'}
  - {series: 'stormpetrel_source_up{source="slurm"}', values: '0x60'}
  - {series: 'stormpetrel_messages_oldest_waiting_seconds', values: '3600x60'}
  - {series: 'stormpetrel_messages_given_up', values: '3x30 4x30'}
  promql_expr_test:
  - {expr: 'count(ALERTS{alertstate="firing", alertname="StormpetrelWatchStuck"})',
     eval_time: 15m, exp_samples: [{value: 1}]}
  - {expr: 'count(ALERTS{alertstate="firing", alertname="StormpetrelSourceLag"})',
     eval_time: 20m, exp_samples: [{value: 1}]}
  - {expr: 'count(ALERTS{alertstate="firing", alertname="StormpetrelMessagesUndelivered"})',
     eval_time: 10m, exp_samples: [{value: 1}]}
  - {expr: 'count(ALERTS{alertstate="firing", alertname="StormpetrelMessagesGivenUp"})',
     eval_time: 45m, exp_samples: [{value: 1}]}
- interval: 1m
  promql_expr_test:
  - {expr: 'count(ALERTS{alertstate="firing", alertname="StormpetrelWatchGone"})',
     eval_time: 10m, exp_samples: [{value: 1}]}
"""


def promtool(tmp_path, *words):
    require("promtool", install="prometheus")
    (tmp_path / "rules.yml").write_text(RULES)
    (tmp_path / "cases.yml").write_text(CASES)
    return subprocess.run([find_program("promtool"), *words], cwd=tmp_path, capture_output=True, text=True)


@pytest.mark.prometheus
def test_promtool_takes_the_rules(tmp_path):
    done = promtool(tmp_path, "check", "rules", "rules.yml")
    assert done.returncode == 0 and "5 rules found" in done.stdout, done.stdout + done.stderr


@pytest.mark.prometheus
def test_each_rule_fires_when_it_should_and_not_before(tmp_path):
    done = promtool(tmp_path, "test", "rules", "cases.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_watch_shows_every_metric_that_the_rules_ask_for():
    metrics = WatchMetrics()
    metrics.beat()
    metrics.note_outbox(OutboxStep(waiting=2, given_up=1, oldest_waiting=at(1)), at(1) + timedelta(seconds=90))
    text = metrics.text().decode()
    asked = set(re.findall(r"stormpetrel_[a-z_]+", " ".join(re.findall(r"expr: (.*)", RULES))))
    assert [name for name in asked if f"# TYPE {name} " not in text] == []
    assert "stormpetrel_messages_oldest_waiting_seconds 90.0" in text and "stormpetrel_messages_waiting 2.0" in text


@pytest.mark.prometheus
def test_a_real_prometheus_notices_that_the_watch_died():
    metrics = WatchMetrics()
    quick = re.sub(r"for: \d+m", "for: 0s", RULES)
    with PostBox() as watch:
        watch.reply = lambda *_: (200, {"Content-Type": "text/plain; version=0.0.4"}, metrics.text())
        with RealPrometheus([f"127.0.0.1:{watch.port}"], interval_s=0.2, rules=quick) as server:
            server.wait_for_samples("stormpetrel_watch_heartbeat_timestamp_seconds", 1)
            wait_until(lambda: "StormpetrelWatchGone" not in server.firing(), "it is calm", limit_s=30)
            watch.stop()
            wait_until(lambda: "StormpetrelWatchGone" in server.firing(), "the dead watch is noticed", limit_s=30)
