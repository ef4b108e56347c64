"""integrations/ray: one command inside sbatch on two nodes of a real Slurm, and the manifest for Kubernetes, read as YAML."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import yaml

from tests.engine.test_on_ray import without_seconds
from tests.parts import need, wait_until
from tests.parts.command_line import report_of, run_here
from tests.parts.ray import ROOT, STORE_BYTES
from tests.parts.slurm import RealSlurm

SCRIPT = ROOT / "integrations" / "ray" / "slurm.sh"
STUDY = ["events", "evaluate", "--hours", "1680", "--seeds", "4", "--models", "seasonal,pca", "--json"]


@pytest.mark.slow
@pytest.mark.slurm
def test_one_command_in_sbatch_works_on_both_nodes_and_leaves_nothing_behind(tmp_path):
    need("ray")
    with RealSlurm(nodes=2, cpus=1, accounting=False) as slurm:
        slurm.env |= {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "client"), str(ROOT)]),
            "OBJECT_STORE_BYTES": str(STORE_BYTES),
        }
        files = [f"--output={tmp_path / 'out'}", f"--error={tmp_path / 'err'}"]
        job = slurm.submit("--nodes=2", "--time=15", *files, str(SCRIPT), *STUDY, "--keep", str(tmp_path / "kept"))
        over = lambda: not slurm.command("squeue", "-h", "-j", str(job), "-t", "PD,R,CG").strip()  # noqa: E731
        wait_until(over, "the job is over", limit_s=900)
        assert (tmp_path / "err").read_text() == ""
        answer = json.loads((tmp_path / "out").read_text())
    assert without_seconds(answer) == without_seconds(report_of(run_here(tmp_path, *STUDY)))
    assert len(list((tmp_path / "kept").glob("*.result"))) == 4
    assert not Path(f"/tmp/ray-{job}").exists()


def test_the_manifest_for_kubernetes_has_what_the_decision_asks_for():
    cluster, policy = yaml.safe_load_all((ROOT / "integrations" / "ray" / "kuberay.yaml").read_text())
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    for group in groups:
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        env = {entry["name"]: entry for entry in container["env"]}
        assert env["RAY_AUTH_MODE"]["value"] == "token" and "secretKeyRef" in env["RAY_AUTH_TOKEN"]["valueFrom"]
        assert pod["securityContext"]["runAsNonRoot"] and pod["automountServiceAccountToken"] is False
        assert container["resources"]["limits"] == container["resources"]["requests"]
        assert group["template"]["metadata"]["labels"] == policy["spec"]["podSelector"]["matchLabels"]
    head = cluster["spec"]["headGroupSpec"]
    assert head["rayStartParams"]["include-dashboard"] == "false"
    assert not [port for port in head["template"]["spec"]["containers"][0]["ports"] if port["containerPort"] == 8265]
    assert (cluster["kind"], cluster["apiVersion"], policy["kind"]) == ("RayCluster", "ray.io/v1", "NetworkPolicy")
