"""An installation without internet: from the wheelhouse alone, in a network namespace that is cut off."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.root
def test_the_wheelhouse_installs_and_runs_the_demo_without_a_network(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to make a network namespace")
    subprocess.run(["make", "wheelhouse"], cwd=REPOSITORY, check=True, capture_output=True, timeout=600)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    cut_off = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    install = [tmp_path / "venv/bin/pip", "install", "--quiet", "--no-index", "--find-links", REPOSITORY / "dist/wheelhouse"]
    subprocess.run(["unshare", "--net", *install, "stormpetrel[postgres]"], env=cut_off, check=True, timeout=300)
    demo = ["unshare", "--net", tmp_path / "venv/bin/stormpetrel", "demo", "site", "--no-serve"]
    done = subprocess.run(demo, env=cut_off, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Check node n017" in done.stdout
