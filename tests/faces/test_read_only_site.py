"""A read-only mount of a whole site, as people and programs use it: commands, pages, API, backup."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.errors import ReadOnlySiteError
from stormpetrel.faces.cli.main import app as command_line
from stormpetrel.faces.web.app import create_app
from stormpetrel.store.site import open_site
from tests.faces.api.sample_site import ADMIN, make_api_site
from tests.faces.web.sample_site import client_of
from tests.jobs.logs import one_thread
from tests.parts import mounts

pytestmark = pytest.mark.root
BROWSER = {"Sec-Fetch-Site": "same-origin", "Accept": "text/html"}


@pytest.fixture(scope="module")
def token_and_folder(tmp_path_factory):
    mounts.needs_mounts()
    made = tmp_path_factory.getbasetemp() / "api-site"
    if not made.exists():  # the tests of the API use the same one
        with one_thread():
            make_api_site(made)
    original = tmp_path_factory.mktemp("read-only") / "site"
    shutil.copytree(made, original)
    with open_site(original) as site:
        token = site.tokens.add("admin", user=ADMIN, scopes=["read", "write", "predict", "manage"])
    with mounts.read_only(original, original.with_name("mounted")) as folder:
        yield token, folder


@pytest.fixture
def folder(token_and_folder):
    return token_and_folder[1]


@pytest.fixture(scope="module")
def served(token_and_folder):
    token, folder = token_and_folder
    with open_site(folder) as site:
        live = LiveSite(site)
        live.refresh()
        yield client_of(create_app(live)), {"Authorization": f"Bearer {token}"}, token


def run(folder, *words):
    done = CliRunner().invoke(command_line, ["--site", str(folder), *map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def some_job(folder):
    with open_site(folder) as site:
        return str(site.jobs.read_jobs().select("job_id").head(1).collect().item())


def test_why_says_what_became_of_a_job(folder):
    assert json.loads(run(folder, "why", some_job(folder), "--json"))["job"]["job_id"]


def test_check_gives_a_risk(folder, tmp_path):
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --time=10\n#SBATCH -n 2\ntrue\n")
    assert json.loads(run(folder, "check", tmp_path / "job.sh", "--json"))["risk"] is not None


def test_sql_models_and_doctor_answer(folder):
    assert json.loads(run(folder, "sql", "select count(*) n from jobs", "--json"))[0]["n"] > 0
    assert json.loads(run(folder, "models", "list", "--json"))
    findings = json.loads(run(folder, "doctor", "--deep", "--json"))["findings"]
    told = {finding["check"]: finding for finding in findings}
    assert told["read-only"]["level"] == "warning" and "is mounted read-only" in told["read-only"]["what"]
    assert told["files"]["level"] == "ok"


@pytest.mark.slow
def test_a_report_is_written_elsewhere(folder, tmp_path):
    assert json.loads(run(folder, "report", "--quick", "-o", tmp_path / "report.html", "--json"))["jobs"] > 0
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_a_backup_is_written_elsewhere(folder, tmp_path):
    assert json.loads(run(folder, "store", "backup", tmp_path / "b.tar", "--json"))["bytes"] > 0


@pytest.mark.parametrize(
    "words",
    [
        ("ingest", "jobs", "/dev/null"),
        ("jobs", "train"),
        ("nightly",),
        ("watch", "--steps", "1", "--address", ""),
        ("store", "compact"),
        ("store", "forget", "ada", "--yes"),
        ("models", "rollback"),
        ("tokens", "add", "x", "--user", "ada"),
        ("synth", "fit"),
    ],
    ids=" ".join,
)
def test_every_command_that_writes_is_refused_in_one_sentence(folder, words):
    with pytest.raises(ReadOnlySiteError, match=f"The site {folder} is read-only: {folder} is mounted read-only"):
        run(folder, *words)


def test_every_page_says_that_it_is_read_only(served):
    client, headers, _ = served
    layout = client.get("/_dash-layout", headers=headers)
    assert "Read-only: this server shows the site and stores nothing." in layout.text


def test_the_health_of_the_api_says_that_it_is_read_only(served):
    client, headers, _ = served
    told = client.get("/api/v1/health", headers=headers).json()
    assert told["read_only"] is True
    assert any(line["name"] == "Read-only" for line in told["lines"])


def test_jobs_are_shown_and_forecast(served):
    client, headers, _ = served
    assert client.get("/api/v1/jobs", headers=headers).json()["total"] > 0
    asked = {"text": "#!/bin/bash\n#SBATCH --time=10\ntrue\n"}
    forecast = client.post("/api/v1/predict/script", headers=headers, json=asked)
    assert forecast.status_code == 200, forecast.text


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("PUT", "/views/mine", {"link": "/jobs"}), ("DELETE", "/views/mine", None)],
    ids=["save", "delete"],
)
def test_what_would_be_kept_is_refused_with_409_and_no_path_of_the_server(served, folder, method, path, body):
    client, headers, _ = served
    answer = client.request(method, f"/api/v1{path}", headers=headers, json=body)
    assert answer.status_code == 409, answer.text
    assert answer.json()["error"]["what"] == "This site is read-only here; nothing was saved."
    assert str(folder) not in answer.text


def test_people_log_in_to_a_read_only_server(served):
    client, _, token = served
    assert client.post("/login", data={"token": token}, headers=BROWSER).status_code == 303
    assert client.get("/_dash-layout", headers=BROWSER).status_code == 200
