"""The real jobcomp/elasticsearch plug-in of a real slurmctld sends to a served site, without any accounting."""

from __future__ import annotations

import subprocess
from pathlib import Path

import polars as pl

from stormpetrel.answers.viewer import INGEST
from stormpetrel.watch.reading import LiveReader
from tests.builders import make_site, table_of
from tests.faces.web.sample_site import api_app, running
from tests.parts import require, wait_until
from tests.parts.slurm import RealSlurm

PLUGIN = "/usr/lib/*/slurm-wlm/jobcomp_elasticsearch.so"


def test_jobs_that_end_are_in_the_table_as_slurm_sent_them(tmp_path: Path) -> None:
    require(PLUGIN, install="slurm-wlm-elasticsearch-plugin")
    serve = {"login": "token", "admins": ["root"]}
    with make_site(tmp_path / "site", serve=serve, slurm={"jobcomp": True, "sacct": str(tmp_path / "none")}) as site:
        token = site.tokens.add("slurm", user="root", scopes=[INGEST])
        with running(api_app(site)) as address:
            location = f"{address.replace('http://', f'http://slurm:{token}@')}/api/v1/jobcomp"
            settings = {"JobCompType": "jobcomp/elasticsearch", "JobCompLoc": location}
            with RealSlurm(nodes=1, accounting=False, settings=settings) as slurm:
                for body in ("true", "exit 3"):
                    subprocess.run(["sbatch", f"--wrap={body}"], env=slurm.env, cwd=slurm.folder / "work", check=True)
                reader = LiveReader(site)

                def both_are_there() -> bool:
                    reader.read()
                    return table_of(site).height == 2

                wait_until(both_are_there, "jobcomp has sent both jobs", limit_s=90)
        jobs = table_of(site).sort("job_id").select("state", "exit_code", "node_list", "source")
    expected = pl.DataFrame(
        {"state": ["COMPLETED", "FAILED"], "exit_code": [0, 3], "node_list": ["n001"] * 2, "source": ["jobcomp"] * 2}
    )
    assert jobs.rows() == expected.rows()
