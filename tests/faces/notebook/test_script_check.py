from __future__ import annotations

from datetime import timedelta

import pytest

from stormpetrel.answers.jobs.one_job import advice_answer
from stormpetrel.answers.schemas.predictions import ScriptAnswer
from stormpetrel.config import settings_from
from stormpetrel.errors import SourceFormatError, UsageError
from stormpetrel.faces.notebook import ScriptCheck, check_script
from stormpetrel.jobs.advice.advice import Advice
from stormpetrel.jobs.prediction_text import percent
from stormpetrel.sources.scripts.job_script import change_line, parse_job_script
from stormpetrel.store.site import create_site
from tests.faces.notebook.hostile import HOSTILE, assert_is_text

SCRIPT = "#!/bin/bash\n#SBATCH --ntasks=4\n#SBATCH --mem=2G\n#SBATCH --time=30\nsrun ./fit\n"


def checked(script: str, column: str = "time_limit_s", proposed: float = 7200.0) -> ScriptCheck:
    """A script with one piece of advice, as `check_request` gives it."""
    request = parse_job_script(script, name="job.sh")
    advice = Advice(column, None, proposed, "Ask for more.", ("all did",), 3, "kind", risk_before=0.6, risk_after=0.2)
    line = change_line(request, column, proposed)
    answer = ScriptAnswer(
        script=request.name, kind=request.kind, request={}, warnings=[], risk=None, advice=[advice_answer(advice, line)], notes=[]
    )
    return ScriptCheck(script, request, answer)


def test_a_script_is_judged_as_if_it_were_submitted_now(practice_site, jobs):
    user = jobs.frame["user"].mode()[0]
    check = check_script(practice_site, SCRIPT, user=user)
    assert 0 < check.risk < 1
    html = check._repr_html_()
    assert f"If submitted now: {percent(check.risk)} risk of failing" in html and "average job" in html
    assert repr(check) == check._repr_mimebundle_()["text/plain"]


def test_a_file_is_read(practice_site, tmp_path):
    (tmp_path / "job.sh").write_text(SCRIPT)
    assert check_script(practice_site, tmp_path / "job.sh", user="nobody").text == SCRIPT


def test_without_a_model_there_is_no_risk_but_an_answer(tmp_path):
    create_site(tmp_path / "site", settings_from({"jobs": {"prior": False}})).close()
    check = check_script(tmp_path / "site", SCRIPT, user="ada")
    assert check.risk is None
    assert "No risk can be given" in check._repr_html_() and "No risk can be given" in repr(check)


def test_an_empty_script_is_refused(practice_site):
    with pytest.raises(SourceFormatError, match="is empty"):
        check_script(practice_site, "", user="ada")


def test_advice_takes_the_place_of_the_line_that_it_changes():
    better = checked(SCRIPT).with_advice()
    assert better == SCRIPT.replace("--time=30", "--time=02:00:00")
    assert parse_job_script(better, name="job.sh").columns["time_limit_s"] == timedelta(hours=2).total_seconds()


def test_other_options_of_the_same_line_are_kept():
    script = "#!/bin/bash\n#SBATCH -N 1 --time=30\n#SBATCH --mem=2G\nsrun ./fit\n"
    better = checked(script).with_advice()
    columns = parse_job_script(better, name="job.sh").columns
    assert "#SBATCH -N 1 --time=30" in better
    assert columns["time_limit_s"] == 7200 and columns["req_nodes"] == 1


def test_a_script_that_said_nothing_gets_a_line():
    better = checked("#!/bin/bash\nsrun ./fit\n").with_advice()
    assert better.split("\n")[1] == "#SBATCH --time=02:00:00"


def test_advice_that_is_not_there_or_is_no_line_is_refused():
    check = checked(SCRIPT)
    with pytest.raises(UsageError, match="no advice 2"):
        check.with_advice(2)
    (advice,) = check.answer.advice
    with pytest.raises(UsageError, match="not a line of a script: Ask for more"):
        check.with_advice(advice.model_copy(update={"proposed": None}))


def test_advice_about_a_job_is_written_into_its_next_script():
    check = checked(SCRIPT)
    (advice,) = check.answer.advice
    more_memory = advice.model_copy(update={"column": "req_mem_bytes", "proposed": 8 * 2**30})
    assert check.with_advice(more_memory) == SCRIPT.replace("--mem=2G", "--mem=8G")


def test_hostile_words_of_a_script_are_shown_as_text(practice_site):
    script = f"#!/bin/bash\n#SBATCH --job-name='{HOSTILE}'\n#SBATCH --{HOSTILE}\n#SBATCH --time={HOSTILE}\n"
    html = check_script(practice_site, script, user=HOSTILE, name=HOSTILE)._repr_html_()
    assert "&lt;img" in html
    assert_is_text(html)
