import pytest

from stormpetrel.figures import trace_sampling
from stormpetrel.simulate.telemetry.campaigns import campaign_set
from stormpetrel.traces.sampling import study_sampling


@pytest.fixture(scope="module")
def study():
    return study_sampling(campaign_set(1, train=1, validation=0, test=0, nodes=3), intervals_s=(1, 10, 60), subsets=2, size=200)


def test_spectra_are_drawn_on_logarithms_with_the_dominant_frequency_marked(study):
    figure = trace_sampling.spectra_figure(study)
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")
    marked = {trace.legendgroup: trace.x[0] for trace in figure.data if trace.mode == "markers"}
    assert marked == {one.job_type: one.dominant_hz for one in study.spectra if one.dominant_hz} and "NP" in marked
    assert {trace.legendgroup for trace in figure.data} == {one.job_type for one in study.spectra}


def test_every_drawn_window_is_on_the_plane_of_components(study):
    figure = trace_sampling.components_figure(study)
    assert sum(len(trace.x) for trace in figure.data) == len(study.points)
    assert "% of the variance" in figure.layout.xaxis.title.text


def test_the_silhouette_has_error_bars_and_both_ways_of_sampling(study):
    figure = trace_sampling.silhouette_figure(study)
    picked, means, advised = figure.data
    assert list(picked.x) == [1, 10, 60] and picked.y[2] == study.scores[2].silhouette.mean
    assert list(picked.error_y.array) == [score.silhouette.std for score in study.scores]
    assert means.y[2] == study.scores[2].silhouette_of_means.mean and advised.x[0] == study.interval_s


def test_every_figure_names_its_axes(study):
    for draw in (trace_sampling.spectra_figure, trace_sampling.components_figure, trace_sampling.silhouette_figure):
        layout = draw(study).layout
        assert layout.title.text and layout.xaxis.title.text and layout.yaxis.title.text
