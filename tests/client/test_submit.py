"""What the wrappers ask; `condor_submit` is a written stand-in here, since there is no HTCondor to submit to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from stormpetrel_client.submit import advice_on, submit_file, wants_input

from stormpetrel.sources.scripts.job_script import parse_job_script
from tests.parts.submit_service import answering, socket_folder

WRAPPER = Path(__file__).parents[2] / "integrations/wrappers/stormpetrel-submit"
DESCRIPTION = 'executable = fit\nrequest_memory = 1 GB\n+Group = "x"\nqueue 3\n'
# Written after HTCondor's manual: what condor_submit prints, with the words and the description that it got.
STAND_IN = """#!/bin/sh
printf '%s\\n' "$@" > "$PETREL_OUT.words"
for word; do case "$word" in *.sub) cat "$word" > "$PETREL_OUT.text";; esac; done
[ -t 0 ] || cat > "$PETREL_OUT.input"
echo 'Submitting job(s)...'
echo '3 job(s) submitted to cluster 4711.'
"""


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ("job.sub", "job.sub"),
        ("-name schedd job.sub -queue 5", "job.sub"),
        ("request_cpus=4 -a x=1 -batch-name fit job.sub", "job.sub"),
        ("-append request_memory=2GB", None),
        ("-", "-"),
        ("-terse -queue 3", None),
    ],
)
def test_the_description_is_found_among_the_words(words: str, file: str | None) -> None:
    assert submit_file(words.split()) == file


def test_who_asks_for_help_is_not_waited_for() -> None:
    assert wants_input("sbatch", ["-t", "5"]) and wants_input("condor_submit", []) and wants_input("condor_submit", ["-"])
    assert not wants_input("sbatch", ["--wrap=x"]) and not wants_input("sbatch", ["--help"])
    assert not wants_input("sbatch", ["job.sh"]) and not wants_input("condor_submit", ["-help"])


def run(folder: Path, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    (folder / "real").mkdir()
    (folder / "real/condor_submit").write_text(STAND_IN)
    (folder / "real/condor_submit").chmod(0o755)
    (folder / "condor_submit").symlink_to(WRAPPER)
    (folder / "job.sub").write_text(DESCRIPTION)
    client = Path(sys.modules["stormpetrel_client"].__file__ or "").parents[1]
    env = {"PATH": f"{folder}:{folder / 'real'}:{os.environ['PATH']}", "PETREL_OUT": str(folder / "out")}
    env |= {"STORMPETREL_SOCKET": str(folder / "api.sock")}
    # -I keeps PYTHONPATH out, as it should: the client is where the wrapper looks for it, beside itself.
    code = f"import sys; sys.path.insert(0, {str(client)!r}); sys.argv = ['condor_submit', *sys.argv[1:]]; "
    code += f"exec(compile(open({str(WRAPPER)!r}).read(), {str(folder / 'condor_submit')!r}, 'exec'), "
    code += f"{{'__name__': '__main__', '__file__': {str(folder / 'condor_submit')!r}}})"
    command = [sys.executable, "-I", "-c", code, *words]
    source = {"stdin": subprocess.DEVNULL} if given is None else {"input": given}
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False, timeout=60, **source)


def test_condor_submit_gets_its_words_and_its_user_two_lines() -> None:
    seen: list[bytes] = []
    with socket_folder("condor") as folder, answering(folder / "api.sock", "show\nStormpetrel: 61 %.\n  Ask.\n", seen=seen):
        done = run(folder, "request_cpus=4", "-append", "request_memory = 2 GB", "job.sub", "-name", "a; $(id)")
        assert done.stderr == "condor_submit: Stormpetrel: 61 %.\ncondor_submit:   Ask.\n"
        assert "3 job(s) submitted to cluster 4711." in done.stdout and done.returncode == 0
        words = (folder / "out.words").read_text().splitlines()
        assert words == ["request_cpus=4", "-append", "request_memory = 2 GB", "job.sub", "-name", "a; $(id)"]
    script = json.loads(seen[0].partition(b"\r\n\r\n")[2])["script"]
    columns = parse_job_script(script["text"], name=script["name"], kind=script["kind"]).columns
    assert (columns["req_cpus"], columns["req_mem_bytes"], columns["array_tasks"]) == (4, 2 * 1024**3, 3)


def test_a_description_from_standard_input_reaches_condor_submit_whole() -> None:
    with socket_folder("condor") as folder, answering(folder / "api.sock", "silent\n"):
        done = run(folder, given=DESCRIPTION)
        assert (done.returncode, done.stderr, (folder / "out.input").read_text()) == (0, "", DESCRIPTION)


def test_a_refusal_of_the_site_reaches_no_schedd_and_silence_of_the_service_does() -> None:
    with socket_folder("condor") as folder, answering(folder / "api.sock", "refuse\nIt can never run.\n"):
        done = run(folder, "job.sub")
        assert (done.returncode, done.stdout) == (1, "") and not (folder / "out.words").exists()
    with socket_folder("condor") as folder:
        assert run(folder, "job.sub").returncode == 0


def test_control_characters_of_an_answer_are_not_printed() -> None:
    with socket_folder("control") as folder, answering(folder / "api.sock", "show\n\x1b[31mred\n"):
        advice = advice_on("sbatch", ["--wrap=x"], None, {"STORMPETREL_SOCKET": str(folder / "api.sock")})
    assert advice is not None and advice.lines == ["?[31mred"]
