from dataclasses import replace
from datetime import timedelta

import pytest

from stormpetrel.alarms.grouping import RETURNS_WITHIN, IncidentBook, quiet_time, seen_by_user
from stormpetrel.alarms.titles import title
from stormpetrel.records.findings import FindingKind, Subject, SubjectKind
from stormpetrel.records.incidents import Blame, IncidentState, Severity
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.alarm_jobs import at

HOUR = timedelta(hours=1)
NODE, USER, CLUSTER = SubjectKind.NODE, SubjectKind.USER, SubjectKind.CLUSTER


def book_of(*findings, until=None):
    book = IncidentBook()
    for one in findings:
        book.take([one], one.known_at)
    book.take([], until or max(one.known_at for one in findings))
    return list(book)


def test_findings_about_one_node_are_one_incident_and_their_jobs_add_up():
    (incident,) = book_of(finding(), finding(when=at(1, hour=2), lost=4, tried=5, users=("bob",)))
    assert incident.findings[0].figure("lost") == 7 and incident.findings[0].figure("tried") == 8
    assert incident.users == {"ann", "bob"} and incident.findings[0].figure("users") == 2
    assert incident.until == at(1, hour=2) and incident.since == at(1) - HOUR
    assert len(incident.paged_at) == 1


def test_a_node_that_went_down_and_eats_jobs_is_one_incident():
    (incident,) = book_of(finding(FindingKind.NODE_DOWN), finding(when=at(1, hour=1)))
    assert incident.kinds == (FindingKind.NODE_DOWN, FindingKind.NODE_EATS_JOBS) and incident.severity == Severity.PAGE
    assert incident.paged_at == (at(1, hour=1) + timedelta(seconds=5),)


def test_two_nodes_hours_apart_and_two_clusters_are_different_incidents():
    assert len(book_of(finding(), finding(FindingKind.NODE_EATS_JOBS, (NODE, "n2"), when=at(1, hour=3)))) == 2
    assert len(book_of(finding(), finding(cluster="c2"))) == 2


def test_a_batch_that_fell_to_a_sick_node_is_part_of_its_incident():
    jobs = [f"job{k}" for k in range(10)]
    (incident,) = book_of(finding(jobs=jobs), batch_finding(jobs=jobs[:6], when=at(1, minute=10)))
    assert incident.subjects[0] == Subject(NODE, "n017") and incident.blame == Blame.NODE
    (turned,) = book_of(batch_finding(jobs=jobs[:6]), finding(jobs=jobs, when=at(1, hour=2)))
    assert turned.known_at == turned.paged_at[0] == turned.raised_at + 2 * HOUR
    apart = book_of(finding(jobs=jobs), batch_finding(jobs=["other"] * 6, when=at(1, minute=10)))
    assert len(apart) == 2


def test_the_next_batch_of_its_user_does_not_bring_a_healed_node_back():
    jobs = [f"job{k}" for k in range(10)]
    incidents = book_of(
        finding(jobs=jobs), batch_finding(jobs=jobs, when=at(1, minute=10)), batch_finding(when=at(4), jobs=["new"])
    )
    assert [incident.subjects[0].kind for incident in incidents] == [NODE, USER]
    assert incidents[0].state == IncidentState.RESOLVED and incidents[0].reopened_at == ()


@pytest.mark.parametrize("turned", [False, True])
def test_a_sick_node_its_odd_cpu_traces_and_the_surge_of_failures_on_it_are_one_incident(turned):
    """Without job records no job says that they belong together: the place that the counts name does."""
    surge = finding(FindingKind.COUNTS_ODD, (CLUSTER, "c1"), (NODE, "n017"), when=at(1, minute=20), family="events", jobs=())
    node = finding(when=at(1, minute=30), family="events", jobs=())
    odd = finding(FindingKind.WINDOWS_ODD, when=at(1, minute=40), family="traces", jobs=())
    (incident,) = book_of(*((node, surge, odd) if turned else (surge, node, odd)))
    assert set(incident.families) == {"events", "traces"} and incident.subjects[0] == Subject(NODE, "n017")
    assert len(incident.paged_at) == 1
    other = finding(
        FindingKind.COUNTS_ODD, (CLUSTER, "c1"), when=at(1), family="events", jobs=()
    )  # something else on the cluster
    assert [one.families for one in book_of(other, node, surge)] == [("events",), ("events",)]
    assert book_of(other, node, surge)[1].kinds == (FindingKind.NODE_EATS_JOBS, FindingKind.COUNTS_ODD)
    elsewhere = finding(FindingKind.COUNTS_ODD, (CLUSTER, "c1"), (NODE, "n2"), when=at(1, minute=35), family="events", jobs=())
    assert len(book_of(node, elsewhere)) == 2


def test_nodes_that_fall_ill_together_are_one_incident_and_point_at_what_they_share():
    nodes = [finding(FindingKind.NODE_EATS_JOBS, (NODE, f"n{k}"), when=at(1, minute=k), users=("ann", "bob")) for k in range(4)]
    (incident,) = book_of(*nodes)
    assert incident.blame == Blame.STORAGE and len(incident.paged_at) == 1
    assert title(incident, "UTC").startswith("n0, n1 and 2 more fail every job")


def test_an_incident_is_resolved_when_quiet_and_reopened_and_paged_again_when_it_returns():
    first, again = finding(), finding(when=at(4))
    (quiet,) = book_of(first, until=at(3))
    assert quiet.state == IncidentState.RESOLVED and quiet.resolved_at == first.until + quiet_time(quiet)
    (back,) = book_of(first, again)
    assert back.state == IncidentState.OPEN and back.resolved_at is None and back.reopened_at == (again.known_at,)
    assert back.paged_at == (first.known_at, again.known_at)


def test_what_keeps_coming_back_must_stay_away_longer():
    times = [at(day) for day in (1, 3, 6)]
    (once,) = book_of(finding(when=times[0]))
    (thrice,) = book_of(*(finding(when=when) for when in times))
    assert len(thrice.reopened_at) == 2 and quiet_time(thrice) == 4 * quiet_time(once)
    (calmer,) = book_of(*(finding(when=when) for when in (*times, at(8))))
    assert len(calmer.reopened_at) == 2  # two days of silence end it no more


def test_what_returns_after_long_is_a_new_incident():
    first = finding()
    incidents = book_of(first, finding(when=at(3) + RETURNS_WITHIN))
    assert [incident.id for incident in incidents] == [1, 2]


def test_what_is_known_late_is_marked_and_wakes_nobody():
    (incident,) = book_of(finding(known=at(2)))
    assert incident.late and not incident.page and incident.severity == Severity.PAGE


def test_three_nodes_down_at_once_are_sent_and_one_is_not():
    down = [finding(FindingKind.NODE_DOWN, (NODE, f"n{k}"), when=at(1, minute=k)) for k in range(3)]
    (one,), (three,) = book_of(down[0]), book_of(*down)
    assert (one.severity, one.page) == (Severity.WARNING, False)
    assert three.severity == Severity.PAGE and three.paged_at == (down[2].known_at,)


@pytest.mark.parametrize(("neighbours", "failed", "blame"), [(20, 1, Blame.USER), (20, 15, Blame.UNCLEAR), (1, 0, Blame.UNCLEAR)])
def test_a_user_is_to_blame_where_others_do_well_on_the_same_nodes(neighbours, failed, blame):
    (incident,) = book_of(batch_finding(nodes=2, on_one_node=0.6, neighbours=neighbours, neighbours_failed=failed))
    assert incident.blame == blame and incident.severity == Severity.INFO
    assert {figure.name for figure in incident.reasons} == {"nodes", "on_one_node", "neighbours", "neighbours_failed"}


@pytest.mark.parametrize(
    ("figures", "blame"),
    [
        ({"nodes": 6, "on_one_node": 0.3, "neighbours": 40, "neighbours_failed": 39, "losing_nodes": 5}, Blame.STORAGE),
        ({"nodes": 2, "on_one_node": 0.9, "neighbours": 40, "neighbours_failed": 39, "losing_nodes": 1}, Blame.NODE),
        ({"nodes": 6, "on_one_node": 0.3, "neighbours": 40, "neighbours_failed": 39, "losing_nodes": 1}, Blame.UNCLEAR),
        ({"nodes": 6, "on_one_node": 0.3, "neighbours": 0, "neighbours_failed": 0, "losing_nodes": 0}, Blame.USER),
    ],
)
def test_where_everybody_fails_one_node_is_to_blame_or_what_many_nodes_share(figures, blame):
    (incident,) = book_of(batch_finding(**figures))
    assert incident.blame == blame


def test_a_node_that_eats_jobs_while_others_lose_all_theirs_points_at_storage():
    (alone,), (among_others,) = book_of(finding(losing_nodes=1)), book_of(finding(losing_nodes=4))
    assert (alone.blame, among_others.blame) == (Blame.NODE, Blame.STORAGE)


@pytest.mark.parametrize(("own", "numbers"), [(10, [1, 2]), (60, [1])])
def test_a_batch_joins_unusual_counts_only_where_it_is_most_of_what_failed_then(own, numbers):
    failed = [f"job{k}" for k in range(100)]
    surge = finding(FindingKind.COUNTS_ODD, (CLUSTER, "c1"), when=at(1), family="events", users=(), jobs=failed)
    book = book_of(surge, batch_finding("ann", jobs=failed[:own], when=at(1, minute=20)))
    assert [one.id for one in book] == numbers


def odd(when, **points):
    return finding(FindingKind.COUNTS_ODD, (CLUSTER, "c1"), when=when, family="events", users=(), **points)


def test_what_events_point_at_adds_up_over_the_buckets_of_an_incident():
    (incident,) = book_of(odd(at(1), points_at_node=2.0), odd(at(1, hour=1), points_at_node=2.0, points_at_user=1.0))
    assert incident.blame == Blame.NODE
    assert {figure.name: figure.value for figure in incident.reasons} == {"points_at_node": 4.0, "points_at_user": 1.0}


def test_events_that_point_at_two_suspects_alike_leave_it_unclear():
    (incident,) = book_of(odd(at(1), points_at_scheduler=6.0, points_at_node=5.0))
    assert incident.blame == Blame.UNCLEAR


def odd_traces(node="n017", *, waiting_nodes, nodes=24.0, waiting=1.0, of_one_job=0.0, when=at(1)):
    figures = {
        "lost": 0,
        "waiting": waiting,
        "waiting_nodes": waiting_nodes,
        "waiting_nodes_of_one_job": of_one_job,
        "watched_nodes": nodes,
        "flagged": 30,
        "windows": 40,
    }
    return finding(FindingKind.WINDOWS_ODD, (NODE, node), when=when, family="traces", users=(), **figures)


def test_many_nodes_that_wait_for_data_at_once_point_at_the_storage_also_where_one_of_them_eats_jobs():
    (alone,) = book_of(odd_traces(waiting_nodes=12.0))
    (eats,) = book_of(finding(), odd_traces(waiting_nodes=12.0, when=at(1, minute=5)))
    assert alone.blame == eats.blame == Blame.STORAGE
    assert {figure.name for figure in alone.reasons} == {"waiting_nodes", "watched_nodes", "waiting_nodes_of_one_job"}


@pytest.mark.parametrize(
    ("nodes", "of_one_job", "blame"), [(8.0, 4.0, Blame.USER), (8.0, 2.0, Blame.STORAGE), (4.0, 4.0, Blame.STORAGE)]
)
def test_one_job_that_waits_for_data_on_half_of_the_nodes_is_its_users_while_the_others_do_not_wait(nodes, of_one_job, blame):
    (incident,) = book_of(odd_traces(waiting_nodes=4.0, nodes=nodes, of_one_job=of_one_job))
    assert incident.blame == blame


@pytest.mark.parametrize("figures", [{"waiting_nodes": 2.0}, {"waiting_nodes": 4.0}, {"waiting_nodes": 12.0, "waiting": 0.1}])
def test_a_few_waiting_nodes_or_traces_that_are_odd_otherwise_do_not_point_at_the_storage(figures):
    (incident,) = book_of(odd_traces(**figures))
    assert incident.blame == Blame.UNCLEAR
    (eats,) = book_of(finding(), odd_traces(**figures, when=at(1, minute=5)))
    assert eats.blame == Blame.NODE


def test_a_node_that_was_sick_before_the_storage_failed_stays_a_sick_node():
    (incident,) = book_of(finding(), odd_traces(waiting_nodes=12.0, when=at(1, hour=20)))
    assert incident.blame == Blame.NODE


def test_what_comes_back_after_it_was_over_is_judged_anew():
    (incident,) = book_of(odd(at(1), points_at_node=20.0), odd(at(2), points_at_scheduler=6.0))
    assert incident.reopened_at and incident.blame == Blame.SCHEDULER


def test_a_user_does_not_see_which_group_unusual_counts_are_of():
    surge = finding(FindingKind.COUNTS_ODD, (CLUSTER, "c1"), (SubjectKind.GROUP, "ann"), family="events", users=("ann",))
    (incident,) = book_of(surge)
    assert seen_by_user(incident, "ann").subjects == (Subject(CLUSTER, "c1"),)


def test_a_user_sees_incidents_of_own_jobs_without_the_names_of_others():
    jobs = [f"job{k}" for k in range(10)]
    node = finding(jobs=jobs, users=("ann", "bob"))
    (incident,) = book_of(node, batch_finding("ann", jobs=jobs, when=at(1, minute=10)))
    seen = seen_by_user(incident, "bob")
    assert seen.subjects == (Subject(NODE, "n017"),) and seen.users == {"bob"} and "ann" not in repr(seen.findings)
    assert Subject(USER, "ann") in seen_by_user(incident, "ann").subjects
    assert seen_by_user(incident, "eve") is None and seen_by_user(incident, "") is None


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (finding(lost=46, tried=46), "n017 fails every job since 23:00: 46 of 46, others 2 %; suspected: node"),
        (finding(lost=45, tried=46), "n017 fails nearly every job since 23:00: 45 of 46, others 2 %; suspected: node"),
        (finding(FindingKind.NODE_DOWN, lost=1), "n017 went down at 23:00: 1 job lost; suspected: node"),
        (
            batch_finding(lost=12, tried=12, neighbours=9),
            "fit jobs of ann fail since 23:00: 12 of 12, before 2 %; suspected: user",
        ),
        (
            finding(FindingKind.BATCH_FAILS, (SubjectKind.APPLICATION, "fit"), lost=12, tried=12, users=("ann", "bob", "cat")),
            "fit fails for 3 users since 23:00: 12 of 12, before 2 %; cause unclear",
        ),
        (
            finding(FindingKind.TIMEOUT_WAVE, (CLUSTER, "c1"), lost=9, users=("ann", "bob"), usual=0.46),
            "jobs of 2 users run out of time since 23:00: 9 jobs, usual in 3 hours: 0.46 users; cause unclear",
        ),
    ],
)
def test_one_line_says_it_all(made, line):
    (incident,) = book_of(made)
    assert title(incident, "UTC") == line.replace("23:00", "2024-05-06 23:00")
    assert title(incident, "Asia/Tokyo") == line.replace("23:00", "2024-05-07 08:00")


def without_usual(made):
    return replace(made, evidence=tuple(figure for figure in made.evidence if figure.name != "usual"))


def test_the_title_gives_no_share_of_others_where_none_was_measured():
    (incident,) = book_of(without_usual(finding(lost=46, tried=46, family="events")))
    assert title(incident, "UTC") == "n017 fails every job since 2024-05-06 23:00: 46 of 46; suspected: node"


def test_of_a_users_first_jobs_the_title_gives_no_share_from_before_also_when_they_go_on():
    first = without_usual(batch_finding(lost=12, tried=12, neighbours=9))
    again = batch_finding(lost=3, tried=3, neighbours=9, when=at(1, hour=2))
    (incident,) = book_of(first, again)
    line = "fit jobs of ann fail since 2024-05-06 23:00: 15 of 15, hardly any such jobs before; suspected: user"
    assert title(incident, "UTC") == line


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ((SubjectKind.GROUP, "209"), "mostly of group 209"),
        ((USER, "209"), "mostly of group 209"),  # as kept before groups were told from users
        ((NODE, "209"), "mostly on node 209"),
        ((SubjectKind.PARTITION, "209"), "mostly at site 209"),
    ],
)
def test_the_title_says_what_the_place_of_unusual_counts_is(place, words):
    (incident,) = book_of(finding(FindingKind.COUNTS_ODD, (CLUSTER, "c1"), place, family="events", count=90.0, expected=7.0))
    assert words in title(incident, "UTC")


def test_the_hour_alone_is_told_to_who_asks_within_a_day():
    (incident,) = book_of(made := finding())
    line = "n017 fails every job since {}: 3 of 3, others 2 %; suspected: node"
    assert title(incident, "UTC", now=made.since + timedelta(hours=23, minutes=59)) == line.format("23:00")
    for now in (made.since + timedelta(hours=24), made.since - timedelta(minutes=1)):
        assert title(incident, "UTC", now=now) == line.format("2024-05-06 23:00")


def test_a_batch_that_goes_on_is_told_by_what_decided_not_by_the_few_jobs_since_the_last_time():
    (few,) = book_of(batch_finding(lost=5, tried=6, deciding_lost=19, deciding_tried=20))
    assert ": 19 of the last 20, before 2 %" in title(few, "UTC")
    (many,) = book_of(batch_finding(lost=31, tried=33, deciding_lost=19, deciding_tried=20))
    assert ": 31 of 33, before 2 %" in title(many, "UTC")


def test_two_watchers_that_see_the_same_node_are_not_added_up():
    (incident,) = book_of(finding(), finding(when=at(1, hour=1), lost=90, tried=90, family="events"))
    assert incident.families == ("jobs", "events") and len(incident.findings) == 2
    assert "3 of 3" in title(incident, "UTC")


def of_cluster(kind, when, **figures):
    return finding(kind, (CLUSTER, "c1"), when=when, family="events", **figures)


def test_an_incident_of_the_cluster_that_is_over_comes_back_only_with_what_was_in_it():
    silent, odd = of_cluster(FindingKind.SILENCE, at(1)), of_cluster(FindingKind.COUNTS_ODD, at(3))
    assert [incident.kinds for incident in book_of(silent, odd)] == [(FindingKind.SILENCE,), (FindingKind.COUNTS_ODD,)]
    (together,) = book_of(silent, of_cluster(FindingKind.COUNTS_ODD, at(1, hour=1)))
    assert together.kinds == (FindingKind.SILENCE, FindingKind.COUNTS_ODD)
    (_, again) = book_of(silent, odd, of_cluster(FindingKind.COUNTS_ODD, at(5)))
    assert again.reopened_at == (at(5) + timedelta(seconds=5),)


def test_a_finding_about_the_cluster_joins_what_is_open_before_anything_comes_back():
    wave, silent = of_cluster(FindingKind.TIMEOUT_WAVE, at(1)), of_cluster(FindingKind.SILENCE, at(1, hour=12))
    first, second = book_of(wave, silent, of_cluster(FindingKind.TIMEOUT_WAVE, at(1, hour=13)))
    assert first.reopened_at == () and second.kinds == (FindingKind.SILENCE, FindingKind.TIMEOUT_WAVE)


def test_of_a_second_silence_the_title_tells_since_when_it_lasts():
    first, second = (of_cluster(FindingKind.SILENCE, when, expected=count) for when, count in ((at(1), 90.0), (at(2), 30.0)))
    (incident,) = book_of(first, second)
    assert incident.since == at(1) - HOUR and len(incident.reopened_at) == 1
    assert title(incident, "UTC") == (
        f"nothing was heard of the cluster since {at(2) - HOUR:%Y-%m-%d %H:%M}, usual are 30 events in that time; cause unclear"
    )


def test_of_unusual_counts_the_title_tells_the_worst_bucket_of_the_last_time_and_adds_nothing_up():
    def odd(when, score, count, *places):
        one = finding(FindingKind.COUNTS_ODD, (CLUSTER, "c1"), *places, when=when, family="events", count=count, expected=7.0)
        return replace(one, score=score)

    host = (SubjectKind.SUBMIT_HOST, "ap1")
    worst = [odd(at(1), 20.0, 500.0, host), odd(at(1, hour=1), 30.0, 900.0, host), odd(at(1, hour=2), 15.0, 70.0, host)]
    (incident,) = book_of(*worst, odd(at(1, hour=3), 14.0, 11.0))
    assert title(incident, "UTC").startswith(f"events of jobs are unusual since {at(1):%Y-%m-%d %H:%M}: 900 ")
    assert "mostly on submit host ap1" in title(incident, "UTC")
    (again,) = book_of(*worst, odd(at(4), 14.0, 11.0))
    assert title(again, "UTC").startswith(f"events of jobs are unusual since {at(4) - HOUR:%Y-%m-%d %H:%M}: 11 ")
    (same_place,) = book_of(*worst, odd(at(4), 14.0, 11.0, host))
    assert title(same_place, "UTC").startswith(f"events of jobs are unusual since {at(4) - HOUR:%Y-%m-%d %H:%M}: 11 ")
