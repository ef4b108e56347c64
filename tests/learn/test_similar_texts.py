"""Similar texts: a new one joins the nearest earlier ones, and nothing that comes later moves it."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stormpetrel.learn.similar_texts import SimilarTexts, similar_names, similar_scripts

NAMES = ["train", "train-lr", "train-lr-wide", "align-reads", "align-reads-dna", "postprocess", "x"]


def groups(names: list[str | None], similar: SimilarTexts | None = None, *, take_in: bool = True) -> list[str | None]:
    return (similar or similar_names()).group(pl.Series(names, dtype=pl.String), take_in=take_in).to_list()


def test_a_new_name_joins_the_nearest_earlier_one():
    assert groups(["train-v-base", "align-reads", "train-v-lr"]) == ["train-v-base", "align-reads", "train-v-base"]


def test_names_that_share_little_stay_alone():
    assert groups(["train", "align", "postprocess"]) == ["train", "align", "postprocess"]


def test_what_all_names_share_says_little():
    tools = ("samtools-sort", "bwa-mem", "picard-markduplicates", "deeptools-computematrix", "multiqc", "fastqc", "trimgalore")
    names = [f"nfcore-{tool}" for tool in tools]
    similar = similar_names()
    groups(names, similar)
    others = ["nfcore-kallisto", "nfcore-star-align", "nfcore-macs-callpeak", "nfcore-homer"]
    assert groups([*others, "nfcore-samtools-sort-reads"], similar) == [*others, "nfcore-samtools-sort"]


def test_names_with_one_first_word_are_alike_whatever_follows():
    samples = ["quartz", "zebra", "mimosa", "kelp", "dingo", "fjord", "lynx", "opal"]
    names = [f"{program}-{sample}" for sample in samples for program in ("align", "train", "chem", "flow", "fit")]
    assert set(groups(names)) == set(names[:5])


def test_once_all_names_share_a_long_prefix_the_rest_tells_them_apart():
    similar = similar_names()
    groups(
        [f"nfcore-chipseq-prepare-{program}" for program in ("fastqc", "samtools", "multiqc", "trim", "picard", "macs")], similar
    )
    names = [
        f"nfcore-chipseq-prepare-{program}-{sample}"
        for sample in ("mutant", "input", "control")
        for program in ("bowtie", "homer")
    ]
    assert groups(names, similar) == [*names[:2]] * 3


def test_a_name_that_is_only_asked_about_founds_no_group():
    similar = similar_names()
    groups(["train-base"], similar)
    assert groups(["align-reads"], similar, take_in=False) == ["align-reads"]
    assert groups(["align-reads-dna"], similar) == ["align-reads-dna"]


@settings(deadline=None)
@given(st.lists(st.sampled_from([*NAMES, None]), min_size=1, max_size=12), st.data())
def test_groups_do_not_depend_on_what_comes_later_nor_on_the_pieces(names, data):
    cut = data.draw(st.integers(0, len(names)))
    first, second = similar_names(), similar_names()
    before = groups(names[:cut], first)
    second.restore(first.to_arrays("name"), "name")
    assert [*before, *groups(names[cut:], second)] == groups(names)


def test_damaged_groups_are_refused():
    similar = similar_names()
    groups(NAMES, similar)
    arrays = similar.to_arrays("name")
    for name, damage in {"length": arrays["name.length"][1:], "group": arrays["name.group"] + 1}.items():
        with pytest.raises(ValueError, match="groups"):
            similar_names().restore({**arrays, f"name.{name}": damage}, "name")
    with pytest.raises(KeyError):
        similar_names().restore({}, "name")


def test_scripts_join_where_half_of_their_signatures_agree():
    one = [f"{value:04x}" for value in range(16)]
    near, far = [*one[:12], *["ffff"] * 4], [*one[:5], *["eeee"] * 11]
    signatures = ["-".join(values) for values in (one, near, far)]
    assert groups(signatures, similar_scripts()) == [signatures[0], signatures[0], signatures[2]]
