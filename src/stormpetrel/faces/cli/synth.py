"""`stormpetrel synth`: more jobs like a site's own, in an order like its own, safe to share."""

from __future__ import annotations

import typer

from stormpetrel.faces.cli import synth_compare, synth_evaluate, synth_fit, synth_sample

app = typer.Typer(
    help="More jobs like a site's own, in an order like its own, safe to share.", no_args_is_help=True, rich_markup_mode=None
)
app.command("fit")(synth_fit.fit)
app.command("sample")(synth_sample.sample)
app.command("evaluate")(synth_evaluate.evaluate)
app.command("compare")(synth_compare.compare)
