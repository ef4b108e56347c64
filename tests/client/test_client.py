"""The light client: where it looks, what it sends, what it prints; against a real served site in tests/faces/api."""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import stormpetrel_client
from stormpetrel_client import command, render
from stormpetrel_client.sbatch import own_options_first, split_words
from stormpetrel_client.service import Service
from stormpetrel_client.where import ClientError, Where, find_service

import stormpetrel
from stormpetrel import config
from stormpetrel.faces.cli import main as cli
from tests.parts import require
from tests.parts.submit_service import socket_folder

FOLDER = Path(stormpetrel_client.__file__).parent
ANSWER = {
    "script": "/home/ada/fit.sh", "request": {"req_cpus": 8, "req_mem_bytes": 64 * 2**30}, "warnings": [], "cluster": None,
    "risk": 0.61,
    "verdict": {"risk": 0.61, "flagged": True, "threshold": 0.4, "base_risk": 0.1, "profile": None, "reasons": [
        {"words": "\x1b[31m3 failed in a row", "contribution": 1.2, "points": 30.0}]},
    "advice": [{"sentence": "Ask for 24 GB instead of 64.", "line": "#SBATCH --mem=24G", "risk_before": 0.61, "risk_after": 0.09,
                "wait_before_s": 10800.0, "wait_after_s": 720.0, "core_hours_saved": None, "evidence": ["12 runs"]}],
    "needs": None, "wait": {"p50_s": 720.0, "p90_s": 3600.0, "reason": None}, "notes": [],
}  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    questions: list[tuple[Any, ...]] = []

    def ask(self: Service, method: str, path: str, *, query: Any = None, body: Any = None) -> Any:
        questions.append((method, path, query, body))
        return ANSWER

    monkeypatch.setattr(Service, "ask", ask)
    monkeypatch.setenv("STORMPETREL_SERVICE", "unix:///run/nowhere.sock")
    return questions


def run(*words: str) -> tuple[int, str]:
    lines: list[str] = []
    code = command.main(words, prints=lines.append)
    return code, "\n".join(lines)


def stdin(data: bytes) -> io.TextIOWrapper:
    """A standard input that holds this and is no terminal."""
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")


# Where


def test_the_environment_wins_over_the_files_and_the_users_file_over_the_sites(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "user.toml", tmp_path / "site.toml"
    theirs.write_text('# of the site\nservice = "https://petrel.example.org"\nca_file = "/etc/ca.pem"\n')
    ours.write_text("service = 'unix:///run/x.sock' # mine\n")
    assert find_service({}, (theirs,)) == Where("https://petrel.example.org", "", "/etc/ca.pem")
    assert find_service({}, (theirs, ours)).socket_path == "/run/x.sock"
    assert find_service({"STORMPETREL_SERVICE": "https://b/"}, (theirs, ours)).service == "https://b"


@pytest.mark.skipif(os.geteuid() != 0, reason="another user can be posed as by root only")
def test_the_home_of_somebody_else_and_a_user_without_one_are_no_obstacle(tmp_path: Path) -> None:
    require("/usr/bin/python3", install="python3")
    program = "import os; from stormpetrel_client.where import find_service; print(find_service(os.environ).service)"
    shutil.copytree(FOLDER, tmp_path / "client/stormpetrel_client")
    (tmp_path / "home/.config/stormpetrel").mkdir(parents=True)
    (tmp_path / "home/.config/stormpetrel/client.toml").write_text('service = "https://theirs"\n')
    (tmp_path / "home").chmod(0o700)
    for home in ({"HOME": str(tmp_path / "home")}, {}):
        with socket_folder("home") as folder:
            shutil.copytree(tmp_path / "client", folder / "client", ignore=lambda *_: ["__pycache__"])
            env = {**home, "PYTHONPATH": str(folder / "client"), "STORMPETREL_SERVICE": "unix:///run/x"}
            words = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "/usr/bin/python3", "-c", program]
            done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=60, cwd="/")
        assert (done.stdout, done.returncode) == ("unix:///run/x\n", 0), done.stderr


@pytest.mark.parametrize("service", ["http://petrel.example.org", "ftp://x", "petrel"])
def test_a_token_never_travels_in_the_open(service: str) -> None:
    with pytest.raises(ClientError, match="no service that can be used"):
        find_service({"STORMPETREL_SERVICE": service}, ())


def test_a_file_that_makes_no_sense_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('service = "https://a"\nservcie = "x"\n')
    with pytest.raises(ClientError, match="Line 2"):
        find_service({}, (tmp_path / "c.toml",))


def test_a_token_that_others_can_read_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("sp_x\n")
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(ClientError, match="chmod 600"):
        Where("https://a", str(tmp_path / "token")).token()
    (tmp_path / "token").chmod(0o600)
    assert Where("https://a", str(tmp_path / "token")).token() == "sp_x"


@pytest.mark.parametrize("content", ["", "\n", "sp_x\nInjected: y\n", "sp_x y\n", "sp_\x07\n"])
def test_what_is_no_token_is_not_sent(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)
    (tmp_path / "token").chmod(0o600)
    with pytest.raises(ClientError, match="There is no token in"):
        Where("https://a", str(tmp_path / "token")).token()
    with pytest.raises(ClientError, match=r"none cannot be read: No such file or directory\.$|Check token_file"):
        Where("https://a", str(tmp_path / "none")).token()


@pytest.mark.parametrize(
    ("where", "hint"),
    [
        (Where("unix:///run/x", "token"), "The socket needs no token"),
        (Where("https://a", "token"), "Make a new one, on the machine of the service: stormpetrel tokens create NAME -o FILE"),
        (Where("https://a"), "then name the file here: STORMPETREL_TOKEN_FILE=FILE"),
    ],
)
def test_who_is_not_let_in_learns_the_way_in(monkeypatch: pytest.MonkeyPatch, where: Where, hint: str) -> None:
    body = json.dumps({"error": {"what": "The token is not valid.", "hint": "of the API"}}).encode()
    monkeypatch.setattr(Where, "token", lambda _: None)
    monkeypatch.setattr(Service, "_exchange", lambda *_: (401, body))
    with pytest.raises(ClientError, match="The token is not valid") as error:
        Service(where).ask("GET", "/me")
    assert hint in error.value.hint and error.value.code == 3


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x\ty", "héllo", "-x"])
def test_a_name_that_no_token_can_have_is_refused(capsys: pytest.CaptureFixture[str], name: str) -> None:
    for act in ("create", "revoke"):
        with pytest.raises(SystemExit):
            run("tokens", act, name)
    assert "name" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["unix", "http"])
def test_a_service_that_hangs_is_given_up_in_time_and_more_time_is_offered(tmp_path: Path, kind: str) -> None:
    with socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET) as listening:
        listening.bind(str(tmp_path / "s") if kind == "unix" else ("127.0.0.1", 0))
        listening.listen()
        service = f"unix://{tmp_path}/s" if kind == "unix" else f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ClientError, match=r"no answer within 0\.2 s\.") as error:
            Service(Where(service), timeout_s=0.2).ask("GET", "/me")
    assert "--timeout 60" in error.value.hint


def test_a_token_is_asked_for_over_the_socket_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("STORMPETREL_SERVICE", "https://petrel.example.org")
    assert run("tokens", "create", "notebook")[0] == 3
    assert "over the service's Unix socket only" in capsys.readouterr().err


@pytest.mark.parametrize("timeout", ["0", "-3", "nan", "inf", "x"])
def test_a_time_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], timeout: str) -> None:
    with pytest.raises(SystemExit):
        run("alarms", f"--timeout={timeout}")
    assert "is no time of up to 3600 seconds" in capsys.readouterr().err


def test_without_a_service_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("STORMPETREL_SERVICE", raising=False)
    monkeypatch.setattr(command, "find_service", lambda _environment: find_service({}, ()))
    assert run("alarms")[0] == 2 and "STORMPETREL_SERVICE" in capsys.readouterr().err


# What sbatch takes


@pytest.mark.parametrize(
    ("words", "options", "script", "wrap"),
    [
        ("-t 5 -c 8 job.sh arg", ["-t", "5", "-c", "8"], "job.sh", None),
        ("-t 5 -- job.sh", ["-t", "5"], "job.sh", None),
        ("-t 5 --wrap", ["-t", "5", "--wrap"], None, None),
        ("-t5 --mem=4G --hold job.sh", ["-t5", "--mem=4G", "--hold"], "job.sh", None),
        ("-HQ -n 2 job.sh", ["-HQ", "-n", "2"], "job.sh", None),
        ("--exclusive --partition long -", ["--exclusive", "--partition", "long"], "-", None),
        ("--wrap=hostname -a 1-3", ["-a", "1-3"], None, "hostname"),
        ("-n1 : -n2 job.sh", ["-n1", ":", "-n2"], "job.sh", None),
        ("", [], None, None),
    ],
)
def test_the_script_is_found_among_the_words(words: str, options: list[str], script: str | None, wrap: str | None) -> None:
    assert split_words(words.split())[:3] == (options, script, wrap)


def test_what_stands_after_the_script_is_for_the_script() -> None:
    assert split_words("-n 2 job.sh -t 5 : x".split()).arguments == ("-t", "5", ":", "x")


@pytest.mark.parametrize(
    ("words", "own", "others"),
    [
        ("-t 5 -c 8 job.sh", "", "-t 5 -c 8 job.sh"),
        ("--json -t 5 job.sh --kind slurm", "--json --kind slurm", "-t 5 job.sh"),
        ("--time=5 job.sh", "", "--time=5 job.sh"),
        ("-J --json job.sh", "", "-J --json job.sh"),
        ("--kind=slurm -n1 : -n2 job.sh", "--kind=slurm", "-n1 : -n2 job.sh"),
        ("-- --json job.sh", "", "--json job.sh"),
        ("-t 5 -- --json", "", "-t 5 -- --json"),
        ("job.sh -- -t 5", "", "-t 5 job.sh"),
        ("job.sh --fail-above", "--fail-above", "job.sh"),
    ],
)
def test_options_of_sbatch_need_no_dashes_before_them(words: str, own: str, others: str) -> None:
    cut = own_options_first(words.split(), flags={"--json"}, with_value={"--kind", "--fail-above"})
    assert cut == (own.split(), others.split())


@pytest.mark.parametrize("dashes", [(), ("--",)])
def test_check_sends_script_and_options(asked: list[tuple[Any, ...]], tmp_path: Path, dashes: tuple[str, ...]) -> None:
    (tmp_path / "fit.sh").write_text("#!/bin/sh\n./fit\n")
    code, text = run("check", *dashes, "-t", "5", "--time-min=1", str(tmp_path / "fit.sh"))
    assert (code, asked[0][:2]) == (0, ("POST", "/predict/script"))
    assert asked[0][3]["arguments"] == ["-t", "5", "--time-min=1"] and asked[0][3]["text"] == "#!/bin/sh\n./fit\n"
    assert "61 % of such jobs fail" in text and "write: #SBATCH --mem=24G" in text
    assert "\x1b" not in text


def test_an_option_after_the_script_is_noted_and_left_to_the_script(
    asked: list[tuple[Any, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fit.sh").write_text("#!/bin/sh\n./fit\n")
    assert run("check", str(tmp_path / "fit.sh"), "-t", "5")[0] == 0 and asked[0][3]["arguments"] == []
    assert "note: -t stands after the script" in capsys.readouterr().err


def test_a_script_that_an_unknown_option_took_is_named(
    asked: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fit.sh").write_text("#!/bin/sh\n./fit\n")
    monkeypatch.setattr(sys, "stdin", stdin(b""))
    assert run("check", "--jsno", str(tmp_path / "fit.sh"))[0] == 2 and not asked
    assert f"{tmp_path}/fit.sh was taken as the value of --jsno." in capsys.readouterr().err


def test_check_of_a_wrapped_command_and_exit_codes(asked: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("check", "--fail-above", ".5", "--", "--wrap", "hostname")[0] == command.ABOVE
    assert asked[0][3]["text"] == "#!/bin/sh\nhostname\n"
    monkeypatch.setitem(ANSWER, "cluster", {"can_run": False, "problems": []})
    assert run("check", "--", "--wrap", "hostname")[0] == command.CANNOT_RUN


@pytest.mark.parametrize("words", [("check", "-"), ("check",), ("check", "--", "-t", "5"), ("check", "--", "-t", "5", "-")])
def test_a_script_comes_from_standard_input_as_for_sbatch(
    asked: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "stdin", stdin(b"#!/bin/sh\n./fit\n"))
    assert run(*words)[0] == 0
    body = asked[0][3]
    assert (body["text"], body["name"]) == ("#!/bin/sh\n./fit\n", "stdin")
    assert body["arguments"] == (["-t", "5"] if "-t" in words else [])


def test_an_empty_standard_input_is_no_script(
    asked: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", stdin(b"\n"))
    assert run("check")[0] == 2 and not asked
    assert "Which script? Standard input is empty." in capsys.readouterr().err


def test_what_is_no_text_reaches_the_service_which_says_so(asked: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", stdin(b"\x7fELF\xff\xfe\0\0"))
    assert run("check")[0] == 0 and asked[0][3]["text"].startswith("\x7fELF\ufffd")


@pytest.mark.parametrize(
    ("content", "complaint"), [(b"", "is empty: there is no job in it."), (None, "cannot be read: Is a directory.")]
)
def test_what_is_no_script_is_one_sentence(
    asked: list[tuple[Any, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, complaint: str
) -> None:
    if content is not None:
        (tmp_path / "job.sh").write_bytes(content)
    path = tmp_path / "job.sh" if content is not None else tmp_path
    assert run("check", str(path))[0] == 2 and not asked and f"{path} {complaint}" in capsys.readouterr().err


@pytest.mark.parametrize("risk", ["30", "-1", "nan", "abc"])
def test_a_risk_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], risk: str) -> None:
    with pytest.raises(SystemExit):
        run("check", f"--fail-above={risk}", "job.sh")
    assert "no risk from 0 to 1, such as 0.3" in capsys.readouterr().err


def test_what_the_service_says_of_a_field_is_said_of_the_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: Service, *_: Any, **__: Any) -> Any:
        raise ClientError("query.limit: Input should be less than or equal to 1000.", "The API's own pages say.", code=3)

    monkeypatch.setattr(Service, "ask", refuse)
    monkeypatch.setenv("STORMPETREL_SERVICE", "unix:///run/nowhere.sock")
    assert run("jobs", "list", "--limit", "5000")[0] == 3
    assert "error: --limit: Input should be less than or equal to 1000." in capsys.readouterr().err


def test_all_of_what_was_counted_is_a_hundred_per_cent_and_a_start_without_waiting_is_at_once() -> None:
    assert "22 of 22 jobs (100 %)" in "\n".join(render.me_lines({"jobs": 22, "failed_jobs": 22, "failed_share": 1.0}))
    answer = {"risk": 1.0, "wait": {"p50_s": 0.0, "p90_s": 7200.0}, "advice": [{"wait_before_s": 7200.0, "wait_after_s": 0.0}]}
    assert render.short_lines(answer)[0] == "Stormpetrel: over 99 % of such jobs fail, half start at once."
    text = "\n".join(render.check_lines(answer))
    assert "Starts at once (half of such jobs), within 2.0 h (nine in ten) of its submission" in text
    assert "starts at once instead of within 2.0 h" in text


def test_waste_has_its_energy_where_the_service_tells_it() -> None:
    sums = {"jobs": 9, "failed_jobs": 4, "lost_core_seconds": 7200, "kwh": 40.0, "lost_kwh": 12.5, "lost_co2_kg": None}
    group = {"group": "ada\x1b[31m", "share": 1.0, **sums}
    energy = {"known": "partly estimated", "words": "Half of the energy was measured."}
    text = "\n".join(render.waste_lines({"by": "user", "groups": [group], "total": sums, "energy": energy}))
    assert "kWh lost (partly estimated)" in text and "\x1b" not in text
    assert "In energy: 12.5 of 40.0 kWh (partly estimated). Half of the energy was measured." in text
    older = "\n".join(render.waste_lines({"by": "user", "groups": [group], "total": sums}))
    assert "In all 2.0 core-hours" in older and "kWh" not in older
    mine = {"jobs": 9, **sums, "lost_co2_kg": 0.25, "energy": energy | {"known": "measured"}}
    assert "12.5 of 40.0 kWh, 0.25 kg of CO2" in "\n".join(render.me_lines(mine))


def test_two_lines_for_somebody_who_is_submitting(asked: list[tuple[Any, ...]]) -> None:
    assert run("check", "--short", "--", "--wrap", "x")[1].splitlines() == [
        "Stormpetrel: 61 % of such jobs fail, half start within 12 min.",
        "  Ask for 24 GB instead of 64. (#SBATCH --mem=24G) risk 61 % → 9 %, starts within 12 min instead of 3.0 h.",
    ]
    assert run("check", "--short", "--above", ".7", "--", "--wrap", "x") == (0, "")


def test_json_is_the_answer_itself(asked: list[tuple[Any, ...]]) -> None:
    assert json.loads(run("check", "--json", "--", "--wrap", "x")[1]) == ANSWER


def test_an_answer_of_an_older_service_is_printed_as_far_as_it_goes() -> None:
    for answer in ({}, {"risk": 0.1}, {"verdict": {"risk": 0.2}}):
        assert list(render.check_lines(answer))
    assert list(render.job_lines({"job": {"job_id": 7}}))
    assert list(render.waste_lines({})) == ["None."]
    assert list(render.alarm_lines({})) == ["No incidents."]


def test_needs_are_in_their_units_and_an_unknown_one_of_a_newer_service_is_left_out() -> None:
    needs = {
        "memory": {"p50": 2.0**30, "p90": 2.0**31, "request": 2.0**32},
        "time": {"p50": 60.0, "p90": 7200.0},
        "cpus": {"p50": 1.5, "p90": 7.0},
    }
    lines = list(render.check_lines({"needs": {**needs, "licences": {"p50": 1, "p90": 2}}}))
    assert "Memory: half such jobs need up to 1.0 GB, nine in ten up to 2.0 GB (it asks for 4.0 GB)" in lines
    assert "Run time: half such jobs need up to 60 s, nine in ten up to 2.0 h" in lines
    assert "CPUs: half such jobs keep busy up to 1.5 CPUs, nine in ten up to 7 CPUs" in lines
    assert not any("licences" in line for line in lines)


# Completion


def test_ids_for_a_shell_are_digits_alone() -> None:
    rows = [{"job": "12"}, {"job": "7_3"}, {"job": "12"}, {"job": "$(id)"}, {"job": "1 2"}, {"job": "_"}, {}, {"job": "٣"}]
    assert list(render.job_ids(rows)) == ["12", "7_3"]


# Tokens


def test_a_token_is_printed_once_or_written_for_us_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bodies = []

    def ask(self: Service, method: str, path: str, *, query: Any = None, body: Any = None) -> Any:
        bodies.append((method, path, body))
        return {"name": "notebook", "scopes": ["read"], "days": 7, "token": "sp_secret"}

    monkeypatch.setattr(Service, "ask", ask)
    monkeypatch.setenv("STORMPETREL_SERVICE", "unix:///run/nowhere.sock")
    assert run("tokens", "create", "notebook", "--scope", "read", "--days", "7") == (0, "sp_secret")
    assert bodies == [("POST", "/tokens", {"name": "notebook", "scopes": ["read"], "days": 7})]
    file = tmp_path / "token"
    code, text = run("tokens", "create", "notebook", "-o", str(file))
    assert (code, file.read_text(), file.stat().st_mode & 0o777) == (0, "sp_secret\n", 0o600) and "sp_secret" not in text
    assert run("tokens", "create", "notebook", "--output", str(file))[0] == 2 and len(bodies) == 2
    assert "is not there yet" in capsys.readouterr().err


def test_a_token_that_is_refused_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(self: Service, *_: Any, **__: Any) -> Any:
        raise ClientError("You have 10 tokens already, and 10 is the most.", "Revoke one first.", code=3)

    monkeypatch.setattr(Service, "ask", refuse)
    monkeypatch.setenv("STORMPETREL_SERVICE", "unix:///run/nowhere.sock")
    assert run("tokens", "create", "a", "-o", str(tmp_path / "token"))[0] == 3 and not list(tmp_path.iterdir())


# The package


def test_it_needs_nothing_but_the_standard_library() -> None:
    names = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add((node.module or "").split(".")[0])
    assert names - {"stormpetrel_client"} <= sys.stdlib_module_names


def test_both_packages_have_one_version() -> None:
    text = (FOLDER.parent / "pyproject.toml").read_text() if (FOLDER.parent / "pyproject.toml").is_file() else ""
    assert stormpetrel_client.__version__ == stormpetrel.__version__ and f'version = "{stormpetrel.__version__}"' in text


# `stormpetrel` itself


def test_without_a_site_the_program_asks_the_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STORMPETREL_SITE", raising=False)
    monkeypatch.setenv("STORMPETREL_SERVICE", "unix:///run/nowhere.sock")
    assert cli.is_for_service(["check", "job.sh"]) and cli.is_for_service(["jobs", "list"])
    assert not cli.is_for_service(["jobs", "train"]) and not cli.is_for_service(["check", "job.sh", "--site", "x"])
    (tmp_path / config.SITE_FILE).touch()
    assert not cli.is_for_service(["check", "job.sh"])


def as_process(*words: str, stdout: Any = subprocess.PIPE, **environment: str) -> subprocess.CompletedProcess[str]:
    """The light client as a process of its own."""
    command = [sys.executable, "-m", "stormpetrel_client", *words]
    return subprocess.run(
        command, env={"PYTHONPATH": str(FOLDER.parent), **environment}, stdout=stdout, stderr=subprocess.PIPE, text=True,
        check=False, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[str]:
    """A service that gives every question the same answer."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "s"))
    listening.listen()

    def answer() -> None:
        with suppress(OSError):  # the end of the test
            while True:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps({**ANSWER, "items": MANY_JOBS}).encode())

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    yield f"unix://{tmp_path}/s"
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


MANY_JOBS = [{"job": str(number), "job_name": "fit", "state": "RUNNING"} for number in range(5000)]


def test_a_terminal_without_our_letters_gets_others(answering: str, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/sh\n")
    done = as_process("check", str(tmp_path / "job.sh"), STORMPETREL_SERVICE=answering, PYTHONIOENCODING="ascii:strict")
    assert done.returncode == 0 and "61 % of such jobs fail" in done.stdout, done.stderr


def test_a_reader_that_goes_away_is_no_error(answering: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = as_process("jobs", "list", stdout=writing, STORMPETREL_SERVICE=answering)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_program_puts_its_own_options_of_check_before_those_of_sbatch() -> None:
    words = ["check", "-t", "5", "--user", "ada", "job.sh", "--json", "--site", "x"]
    assert cli.common_first(words) == ["--site", "x", "check", "--user", "ada", "--json", "--", "-t", "5", "job.sh"]
    assert cli.common_first(["jobs", "list", "--json"]) == ["jobs", "list", "--json"]


def test_a_service_that_is_away_is_one_sentence(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "stormpetrel_client", "alarms"]
    environment = {"STORMPETREL_SERVICE": f"unix://{tmp_path}/none.sock", "PYTHONPATH": str(FOLDER.parent)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2 and "does not answer" in done.stderr and "Traceback" not in done.stderr
