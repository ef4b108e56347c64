"""`stormpetrel rehearse`: what does not go together is refused before a site is opened."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.main import app


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        (["--live", "--engine", "auto"], "--live is one walk"),
        (["--live", "--workers", "2"], "--live is one walk"),
        (["--live", "--no-models"], "are about the past"),
        (["--poll", "2"], "need --live"),
    ],
)
def test_options_of_the_past_and_of_the_live_stream_do_not_mix(options, refusal):
    done = CliRunner().invoke(app, ["rehearse", *options])
    assert isinstance(done.exception, UsageError) and refusal in str(done.exception)
