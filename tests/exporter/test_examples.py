"""The unit, the lines for Prometheus and the page about the exporter, against the exporter itself."""

import configparser
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from stormpetrel.exporter.command import _parser
from tests.exporter.made import FakeNode, figures_of, text_of
from tests.parts import find_program, require

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/exporter"
PAGE = (ROOT / "docs/exporter.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def unit():
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(EXAMPLES / "stormpetrel-exporter.service")
    return parser


def test_the_unit_starts_the_exporter_with_options_that_exist(unit):
    words = shlex.split(unit["Service"]["ExecStart"])
    at = next(number for number, word in enumerate(words) if word.endswith(".pyz"))
    assert _parser().parse_args(words[at + 1 :]).address == "${STORMPETREL_ADDRESS}"
    assert unit["Service"]["Environment"] == "STORMPETREL_ADDRESS=127.0.0.1:9643"


def test_the_unit_needs_no_root_and_no_rights(unit):
    service = unit["Service"]
    assert service["DynamicUser"] == "yes" and service["CapabilityBoundingSet"] == "" and service["NoNewPrivileges"] == "yes"


@pytest.mark.prometheus
def test_prometheus_takes_the_lines():
    require("promtool", install="prometheus")
    checked = subprocess.run(
        [find_program("promtool"), "check", "config", EXAMPLES / "prometheus.yml"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr


def test_prometheus_keeps_every_metric_of_the_exporter():
    assert "relabel" not in (EXAMPLES / "prometheus.yml").read_text(encoding="utf-8")  # the score of a node needs them all


def test_every_metric_is_on_the_page(tmp_path):
    node = FakeNode(tmp_path, kind="hybrid").devices()
    node.job("stormpetrel/job_1", cpus="0")
    node.job_v1("stormpetrel/job_1", cpus="0")
    shown = {re.sub("(?<=cgroup_pressure_)(memory|io)", "cpu", key[0]) for key in figures_of(text_of(node.sampler()))}
    documented = set(re.findall(r"`((?:node|cgroup|stormpetrel)_[A-Za-z_]+)`", PAGE))
    assert shown <= documented
    assert documented - shown <= {"cgroup_memory_total_bytes"}  # a job without a limit has none


def test_every_option_is_on_the_page_and_no_other():
    known = {word for action in _parser()._actions for word in action.option_strings if word.startswith("--")}
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE))
    assert used <= known
    assert known - used <= {"--help", "--version"}
