"""Settings of what is read: Slurm, HTCondor, Prometheus, Elasticsearch, Graphite, Grafana; and the base of every section."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class Section(BaseModel):
    """A table of site.toml: unknown keys and wrong types are refused, and nothing changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SlurmSection(Section):
    """How to reach a live Slurm."""

    sacct: str = Field(default="sacct", description="the sacct command: a name on PATH or a full path")
    squeue: str = Field(default="", description="the squeue command, for what waits and runs now; empty: the one next to sacct")
    scontrol: str = Field(default="", description="the scontrol command, for partitions and nodes; empty: the one next to sacct")
    cluster_minutes: float = Field(
        default=10.0, ge=0, description="what is kept of partitions, nodes and QOS is read again after this long; 0: never read"
    )
    clusters: list[str] = Field(default=[], description="clusters to ask for (sacct -M); empty: the local one")
    array_tasks: int = Field(
        default=100_000, ge=1, description="waiting tasks of one array that are kept one by one; the others come when they start"
    )
    since: str = Field(default="", description="first day to read, YYYY-MM-DD; empty: 30 days before the first run")
    chunk_days: float = Field(default=1.0, gt=0, le=31, description="days per sacct call")
    pause_s: float = Field(default=0.5, ge=0, description="pause between two calls, to spare the accounting database")
    overlap_hours: float = Field(
        default=24.0, ge=0, description="how far before its cursor a run reads again, for late corrections"
    )
    timeout_s: float = Field(default=300.0, gt=0, description="a sacct call or request that takes longer is given up")
    jobcomp: bool = Field(
        default=False, description="take in what the jobcomp/elasticsearch plug-in sends to POST /api/v1/jobcomp of serve"
    )
    rest_url: str = Field(
        default="", description="slurmrestd: http://host:6820, https://… or unix:///path/to/socket; empty: use sacct"
    )
    rest_version: str = Field(default="", description="API version such as v0.0.41; empty: the newest the server speaks")
    rest_user: str = Field(default="", description="user name sent with the token")
    rest_token_file: str = Field(default="", description="file with the JWT (mode 0600); never the token itself")


class PrometheusSection(Section):
    """Where node telemetry is kept."""

    url: str = Field(default="", description="http://host:9090, also with a path (VictoriaMetrics, Thanos, Mimir); found by init")
    token_file: str = Field(default="", description="file with the bearer token (mode 0600); never the token itself")
    ca_file: str = Field(default="", description="certificate authority of an https server that the system does not know")
    select: str = Field(default="", description='matchers added to every query, such as job="node", to choose among many nodes')
    shard: str = Field(
        default="",
        description="which part of the nodes this site reads, such as 2/8: the second of eight sites of one cluster; empty: all",
    )
    node_label: str = Field(default="instance", description="label that names the node; a port at its end is dropped")
    step_s: float = Field(default=1.0, ge=0.1, le=3600, description="the scrape interval: one step of a trace")
    since: str = Field(default="", description="first moment to read, YYYY-MM-DD or YYYY-MM-DDTHH:MM; empty: an hour ago")
    chunk_minutes: float = Field(default=10.0, gt=0, le=1440, description="minutes per range query")
    settle_s: float = Field(
        default=15.0, ge=0, description="what is younger than this is left for the next run: samples come late"
    )
    overlap_s: float = Field(default=300.0, ge=0, description="how far before its cursor a run reads again, for late samples")
    timeout_s: float = Field(default=30.0, gt=0, description="a query that takes longer is given up, and tried again twice")
    background: list[str] = Field(
        default=[],
        description='name=query of what is shown to the alarm of the cluster, such as "queued=sum(slurm_jobs_pending)"',
    )

    @field_validator("shard")
    @classmethod
    def _is_a_shard(cls, shard: str) -> str:
        parts = re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", shard)
        if shard and (parts is None or int(parts[1]) > int(parts[2])):
            raise ValueError(f"{shard!r} is no shard; write 2/8 for the second of eight")
        return shard


class HtcondorSection(Section):
    """Where HTCondor keeps its event log."""

    event_log: str = Field(default="", description="path of EVENT_LOG; found by init; read it with: ingest jobs PATH")
    submit_host: str = Field(
        default="", description="submit host that the event log is of, where the log does not say; empty: ours"
    )
    condor_q: str = Field(default="", description="the condor_q command, for acting: condor_rm and others lie beside it")


class ElasticSection(Section):
    """Where job events lie in Elasticsearch or OpenSearch."""

    url: str = Field(default="", description="https://host:9200; empty: events do not come from there")
    flavour: Literal["auto", "elasticsearch", "opensearch"] = Field(
        default="auto", description="which of the two; auto: ask the server"
    )
    index: str = Field(default="fifebatch-events-*", description="index, alias or pattern of the event documents")
    time_field: str = Field(default="@timestamp", description="field with the time of the event")
    time_zone: str = Field(default="UTC", description="zone in which the server cuts days and hours into buckets")
    kind_field: str = Field(default="MyType.keyword", description="field with the event type (keyword)")
    trigger_field: str = Field(
        default="TriggerEventTypeName.keyword",
        description="field that says what event 028 (JobAdInformationEvent) tells of; may be empty",
    )
    site_field: str = Field(default="MachineAttrGLIDEIN_Site0.keyword", description="field with the site; may be empty")
    submit_host_field: str = Field(default="host.keyword", description="field with the submit host; may be empty")
    group_field: str = Field(default="Jobsub_Group.keyword", description="field with the group or experiment; may be empty")
    node_field: str = Field(default="", description="field with the node; may be empty")
    return_field: str = Field(
        default="ReturnValue", description="field with the exit code; may be empty: no JobFailed is counted then"
    )
    unique_field: str = Field(default="", description="field that names an event for good: documents that repeat it count once")
    query: str = Field(default="", description="Lucene query that chooses among the documents, such as pool:fifebatch")
    api_key_file: str = Field(default="", description="file with the API key (mode 0600); never the key itself")
    user: str = Field(default="", description="user name, for a password instead of an API key")
    password_file: str = Field(default="", description="file with the password (mode 0600); never the password itself")
    ca_file: str = Field(default="", description="certificate authority of a server that the system does not know")
    chunk_days: float = Field(default=7.0, gt=0, le=366, description="days per request; long spans are read piece by piece")
    page_size: int = Field(default=1000, ge=10, le=10000, description="buckets or documents per page")
    timeout_s: float = Field(default=60.0, gt=0, description="a request that takes longer is given up, and tried again")
    retries: int = Field(default=4, ge=0, le=20, description="how often a request is tried again, each time after a longer pause")


class GraphiteSection(Section):
    """Background of the cluster from Graphite: queued jobs, slots claimed, utilisation, health."""

    url: str = Field(default="", description="http://host:8080; empty: none")
    targets: list[str] = Field(default=[], description='name=target, such as "queued=clusters.main.totals.idle.totals.count"')
    token_file: str = Field(default="", description="file with the bearer token (mode 0600); never the token itself")
    ca_file: str = Field(default="", description="certificate authority of an https server that the system does not know")
    timeout_s: float = Field(default=30.0, gt=0, description="a request that takes longer is given up, and tried again twice")


class GrafanaSection(Section):
    """Outages from Grafana's annotations."""

    url: str = Field(default="", description="https://host:3000; empty: none")
    token_file: str = Field(default="", description="file with the service account's token (mode 0600); never the token itself")
    tags: list[str] = Field(default=["outage"], description="annotations with one of these tags are outages")
    maintenance_tags: list[str] = Field(default=["maintenance"], description="annotations with one of these tags are maintenance")
    ca_file: str = Field(default="", description="certificate authority of an https server that the system does not know")
    timeout_s: float = Field(default=30.0, gt=0, description="a request that takes longer is given up, and tried again twice")
