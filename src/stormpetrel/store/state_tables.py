"""The tables of the state store, each declared once.

To change one: change it here, raise STATE_FORMAT (state.py) and add a step (migrations.py).
"""

from __future__ import annotations

import sqlalchemy as sa

METADATA = sa.MetaData()

meta = sa.Table("meta", METADATA, sa.Column("key", sa.String(64), primary_key=True), sa.Column("value", sa.Text, nullable=False))
ingests = sa.Table(
    "ingests",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("finished", sa.String(40), nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("report", sa.Text, nullable=False),
)
forgotten = sa.Table("forgotten", METADATA, sa.Column("digest", sa.String(64), primary_key=True))
models = sa.Table(
    "models",
    METADATA,
    sa.Column("name", sa.String(64), primary_key=True),  # such as `jobs-submit`
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("created", sa.String(40), nullable=False),
    sa.Column("about", sa.Text, nullable=False),  # JSON: figures, data window, table version
    sa.Column("current", sa.Boolean, nullable=False),
)
tokens = sa.Table(
    "tokens",
    METADATA,
    sa.Column("digest", sa.String(64), primary_key=True),  # SHA-256 of the token; the token itself is nowhere
    sa.Column("name", sa.String(128), nullable=False),
    sa.Column("user", sa.Text, nullable=False),  # whose jobs it shows
    sa.Column("scopes", sa.Text, nullable=False),  # JSON list
    sa.Column("created", sa.String(40), nullable=False),
    sa.Column("expires", sa.String(40)),
    sa.UniqueConstraint("user", "name"),  # users name their own
)
opinions = sa.Table(
    "opinions",  # "was this advice useful?"
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", sa.String(40), nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("job", sa.Text, nullable=False),
    sa.Column("advice", sa.Text, nullable=False),
    sa.Column("useful", sa.Boolean, nullable=False),
)
views = sa.Table(
    "views",  # saved views: a name for a link
    METADATA,
    sa.Column("user", sa.String(128), primary_key=True),
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("link", sa.Text, nullable=False),
)
audit = sa.Table(
    "audit",  # who did what
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", sa.String(40), nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("about", sa.Text, nullable=False),  # JSON
)
outages = sa.Table(
    "outages",  # what people, Grafana and calendars say of spans of time
    METADATA,
    sa.Column("source", sa.String(200), primary_key=True),
    sa.Column("uid", sa.String(200), primary_key=True),
    sa.Column("start", sa.String(40), nullable=False),  # ISO, UTC
    sa.Column("end", sa.String(40)),  # null while it lasts
    sa.Column("kind", sa.String(20), nullable=False),  # outage, maintenance, normal
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("resource", sa.String(200)),  # the machine that it is of; null: the whole cluster
)
incidents = sa.Table(
    "incidents",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("raised", sa.String(40), nullable=False),  # ISO, UTC
    sa.Column("resolved", sa.String(40)),  # null while it lasts
    sa.Column("changed", sa.String(40), nullable=False),
    sa.Column("severity", sa.String(20), nullable=False),
    sa.Column("body", sa.Text, nullable=False),  # JSON: what the findings say; what people said is in `incident_acts`
    sa.Column("recorded", sa.String(40)),  # how it got into the table of incidents; null: it changed since
)
incident_acts = sa.Table(
    "incident_acts",  # acknowledgements, verdicts, notes
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("incident", sa.Integer, nullable=False, index=True),
    sa.Column("time", sa.String(40), nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("note", sa.Text, nullable=False),
)
mutes = sa.Table(
    "mutes",  # nothing is sent about these until then
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("cluster", sa.Text, nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),  # of the subject
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("since", sa.String(40), nullable=False),
    sa.Column("until", sa.String(40), nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)
watchers = sa.Table(
    "watchers",  # what each watcher needs to go on where it was; written together with the incidents that it led to
    METADATA,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("body", sa.Text, nullable=False),  # JSON
)
messages = sa.Table(
    "messages",
    METADATA,
    sa.Column("key", sa.String(200), primary_key=True),
    sa.Column("route", sa.String(64), nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("incident", sa.Integer, nullable=False, index=True),
    sa.Column("opening", sa.Integer, nullable=False),
    sa.Column("created", sa.String(40), nullable=False),
    sa.Column("state", sa.String(20), nullable=False, index=True),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("not_before", sa.String(40)),
    sa.Column("sending_since", sa.String(40)),
    sa.Column("delivered", sa.String(40)),
    sa.Column("problem", sa.Text, nullable=False),
)
actions = sa.Table(
    "actions",  # what was decided about a job or a node, noted before it is done, and what came of it
    METADATA,
    sa.Column("key", sa.String(400), primary_key=True),
    sa.Column("policy", sa.String(64), nullable=False, index=True),  # empty: a person's
    sa.Column("digest", sa.String(32), nullable=False),  # of the policy as it was
    sa.Column("mode", sa.String(20), nullable=False),  # dry, live, person
    sa.Column("user", sa.Text, nullable=False),  # whose job it is; empty for a node
    sa.Column("decided", sa.String(40), nullable=False, index=True),  # ISO, UTC
    sa.Column("state", sa.String(20), nullable=False, index=True),
    sa.Column("settled", sa.String(40)),  # when what became of it was known
    sa.Column("outcome", sa.String(20)),
    sa.Column("saved_core_s", sa.Float, nullable=False),
    sa.Column("lost_core_s", sa.Float, nullable=False),
    sa.Column("redo_core_s", sa.Float, nullable=False),
    sa.Column("right_jobs", sa.Integer, nullable=False),
    sa.Column("wrong_jobs", sa.Integer, nullable=False),
    sa.Column("body", sa.Text, nullable=False),  # JSON: subject, evidence, steps and answers
)
case_answers = sa.Table(
    "case_answers",  # what administrators said of the cases that they were asked about
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("case", sa.String(300), nullable=False, index=True),
    sa.Column("time", sa.String(40), nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),  # confirm, dismiss, withdraw
    sa.Column("note", sa.Text, nullable=False),
)
mails = sa.Table(
    "mails",  # mail to users: each call of Slurm's MailProg, kept until it is delivered
    METADATA,
    sa.Column("key", sa.String(200), primary_key=True),
    sa.Column("kind", sa.String(20), nullable=False),  # end, plain
    sa.Column("recipient", sa.String(320), nullable=False),
    sa.Column("user", sa.Text, nullable=False),  # whose job it is, as in the tables; empty where Slurm did not say
    sa.Column("topic", sa.String(200), nullable=False),  # what is told together: a job, an array
    sa.Column("created", sa.String(40), nullable=False, index=True),  # ISO, UTC
    sa.Column("state", sa.String(20), nullable=False, index=True),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("not_before", sa.String(40)),
    sa.Column("sending_since", sa.String(40)),
    sa.Column("delivered", sa.String(40)),
    sa.Column("message", sa.String(80)),  # the id of the mail that it is part of, while an attempt may have arrived
    sa.Column("problem", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),  # JSON: what Slurm said
)
digests = sa.Table(
    "digests",  # who wants the weekly digest
    METADATA,
    sa.Column("user", sa.String(256), primary_key=True),
    sa.Column("address", sa.String(320), nullable=False),
    sa.Column("since", sa.String(40), nullable=False),  # ISO, UTC
    sa.Column("last", sa.String(40), nullable=False),  # nothing is queued for appointed times up to this
)
ALL_TABLES = (
    meta, ingests, forgotten, models, tokens, opinions, views, audit, outages,
    incidents, incident_acts, mutes, watchers, messages, actions, case_answers, mails, digests,
)  # fmt: skip
