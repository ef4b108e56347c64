"""A real Slurm on loopback: munged, mariadbd, slurmdbd, slurmctld, some slurmd, and slurmrestd where it is asked for.

`with RealSlurm() as slurm: slurm.submit("--wrap=true")`. No systemd, no container: everything lies in one folder and is gone
afterwards. The cluster is called `petrel`; its nodes pretend to have four CPUs each, so that jobs need not wait.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.parts import Daemon, find_program, free_ports, is_root, require, wait_until

PROGRAMS = ("munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "slurmrestd", "sacct", "setpriv")
PACKAGES = "slurm-wlm slurmdbd slurmrestd munge mariadb-server"
JWT_PLUGIN = "/usr/lib/*/slurm-wlm/auth_jwt.so"
CLUSTER = "petrel"
_REST_PLUGINS = "openapi/v0.0.38,openapi/dbv0.0.38"
_MEMORY_PER_CPU_MB = 1000
_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 1 << 30


class RealSlurm:
    """A cluster with accounting, as a context manager.

    `folder` holds everything; `env` is for subprocesses that shall talk to this cluster. `settings` replaces lines of its
    slurm.conf, or adds them; `node_options` and `more_conf` are added to the lines of the nodes and to slurm.conf: features,
    partitions, limits that are enforced. `cgroup_conf` is its cgroup.conf, `name` what the names of its nodes begin with. Without
    `accounting` it starts in half the time and knows jobs only while they are there. `more_files` lie next to slurm.conf.
    """

    def __init__(
        self,
        *,
        nodes: int = 2,
        cpus: int = 4,
        settings: Mapping[str, str] | None = None,
        node_options: str = "",
        more_conf: str = "",
        cgroup_conf: str = "",
        name: str = "n",
        accounting: bool = True,
        more_files: Mapping[str, str] | None = None,
    ) -> None:
        self.nodes = [f"{name}{number:03d}" for number in range(1, nodes + 1)]
        self._cgroup_conf, self._accounting = cgroup_conf, accounting
        self._more_files = dict(more_files or {})
        self._cpus, self._settings = cpus, dict(settings or {})
        self.has_jwt = find_program(JWT_PLUGIN) is not None
        self._node_options, self._more_conf = node_options, more_conf
        self._daemons: list[Daemon] = []
        self._rest: dict[str, str] = {}
        self._users: set[str] = set()

    def __enter__(self) -> RealSlurm:
        require(*PROGRAMS, install=PACKAGES)
        # Not in pytest's folder: munged and mariadbd run as users who may not enter it, and sockets need short paths.
        self.folder = Path(tempfile.mkdtemp(prefix="petrel-slurm-", dir=_in_memory()))
        self.folder.chmod(0o755)
        for name in ("etc", "log", "run", "state", "spool", "work"):
            (self.folder / name).mkdir()
        self.env = {**os.environ, "SLURM_CONF": str(self.folder / "etc/slurm.conf"), "LC_ALL": "C.UTF-8"}
        self.env.pop("SLURM_JWT", None)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self._daemons):  # nothing of it is needed any more: asking them to end takes seconds
            daemon.process.kill()
            daemon.process.wait()
        try:
            wait_until(lambda: not self._kill_left_behind(), "all that belonged to the cluster has ended", limit_s=30)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    # Jobs

    def submit(self, *arguments: str, user: str = "") -> int:
        """Submit a job with sbatch, as another user of this machine if one is named; its id."""
        output = "/dev/null" if user else self.folder / "work" / "%j.out"
        defaults = ["--parsable", "--account=science", f"--output={output}", f"--chdir={self.folder / 'work'}"]
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"] if user else []
        return int(self.command(*become, "sbatch", *defaults, *arguments).split(";")[0])

    def add_user(self, name: str) -> str:
        """Let a user of this machine submit jobs; the name."""
        if name not in self._users:
            self.command("sacctmgr", "-i", "add", "user", name, "Account=science")
            self._users.add(name)
        return name

    def script(self, name: str, text: str) -> str:
        """Write a batch script; its path."""
        path = self.folder / "work" / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        return str(path)

    def states(self, job_id: int) -> list[str]:
        """The states that accounting shows for a job, its array tasks and components, runs before a requeue included."""
        rows = self.command("sacct", "-n", "-P", "-X", "-D", "-j", str(job_id), "-o", "State")
        return [row.split(" ")[0] for row in rows.splitlines()]

    def wait_for_state(self, job_id: int, state: str, *, count: int = 1, limit_s: float = 60.0) -> None:
        """Wait until accounting shows so many records of a job in a state (and none of them is still going on)."""
        wait_until(
            lambda: self.states(job_id).count(state) >= count,
            f"accounting shows job {job_id} as {state}; it says {self.states(job_id)}",
            limit_s=limit_s,
        )

    def wait_for_steps(self, job_id: int, count: int, *, limit_s: float = 30.0) -> None:
        """Wait until accounting has the end of so many steps of a job: they come a little after the job's own."""
        fields = ("-n", "-P", "-j", str(job_id), "-o", "JobID,End")

        def ended() -> bool:
            rows = [row.split("|") for row in self.command("sacct", *fields).splitlines()]
            return sum("." in name and end != "Unknown" for name, end in rows) >= count

        wait_until(ended, f"accounting shows the end of {count} steps of job {job_id}", limit_s=limit_s)

    def command(self, *words: str) -> str:
        """Run one of Slurm's commands; what it prints."""
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)} exited with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    # What can happen to a cluster

    @contextmanager
    def down(self, name: str) -> Iterator[None]:
        """End slurmctld or slurmdbd while the block runs; afterwards it is back and answers."""
        self._daemon(name).stop()
        try:
            yield
        finally:
            self._start_daemon(name, [name, "-D"])
            wait_until(self._answers, f"{name} answers again", limit_s=60, alive=self._daemon(name))

    @contextmanager
    def hanging(self, name: str) -> Iterator[None]:
        """Let slurmctld or slurmdbd stand still while the block runs: whoever asks it waits."""
        process = self._daemon(name).process
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)
            wait_until(self._answers, f"{name} answers again", limit_s=60)

    @contextmanager
    def nothing_starts(self) -> Iterator[None]:
        """Close the partition while the block runs: what runs goes on, what waits goes on waiting; the queue comes to rest."""
        self.command("scontrol", "update", "PartitionName=debug", "State=DOWN")
        try:
            yield
        finally:
            self.command("scontrol", "update", "PartitionName=debug", "State=UP")

    def _daemon(self, name: str) -> Daemon:
        return next(daemon for daemon in reversed(self._daemons) if daemon.name == name)

    def _answers(self) -> bool:
        return "UP" in self._says("scontrol", "ping") and self._works("sacctmgr", "-n", "list", "cluster")

    # slurmrestd

    def rest_socket(self) -> str:
        """Start slurmrestd on a unix socket, once; its address as site.toml wants it."""
        if "socket" not in self._rest:
            path = self.folder / "run" / "rest.socket"
            daemon = self._start_rest("rest_auth/local", f"unix:{path}")
            wait_until(path.exists, "slurmrestd opened its socket", limit_s=20, alive=daemon)
            self._rest["socket"] = f"unix://{path}"
        return self._rest["socket"]

    def rest_http(self) -> str:
        """Start slurmrestd on TCP with JWT, once; its address."""
        require(JWT_PLUGIN, install="slurm-wlm-jwt-plugin")
        if "http" not in self._rest:
            (port,) = free_ports(1)
            daemon = self._start_rest("rest_auth/jwt", f"127.0.0.1:{port}", SLURM_JWT="daemon")
            address = f"http://127.0.0.1:{port}"
            wait_until(lambda: _answers_http(address), "slurmrestd answers", limit_s=20, alive=daemon)
            self._rest["http"] = address
        return self._rest["http"]

    def token(self, *, lifespan_s: int = 3600) -> str:
        """A JWT of the user who runs the tests."""
        printed = self.command("scontrol", "token", f"username={getpass.getuser()}", f"lifespan={lifespan_s}")
        return printed.strip().removeprefix("SLURM_JWT=")

    def _start_rest(self, authentication: str, address: str, **extra: str) -> Daemon:
        # slurmrestd does not want to run as root or as SlurmUser; here both are who runs the tests.
        env = {**self.env, "SLURMRESTD_SECURITY": "disable_user_check", **extra}
        command = ["slurmrestd", "-a", authentication, "-s", _REST_PLUGINS, address]
        return self._start_daemon("slurmrestd", command, env=env)

    # Up and down

    def _start(self) -> None:
        controller, accounting, database, *nodes = free_ports(3 + len(self.nodes))
        self._start_munge()
        if self.has_jwt:
            self._write("etc/jwt.key", secrets.token_bytes(32), mode=0o600)
        for name, text in self._more_files.items():
            self._write(f"etc/{name}", text.encode())
        self._write("etc/slurm.conf", self._slurm_conf(controller, accounting, nodes).encode())
        self._write("etc/cgroup.conf", self._cgroup_conf.encode())
        if self._accounting:
            self._start_accounting(accounting, database)
        daemon = self._start_daemon("slurmctld", ["slurmctld", "-D"])
        wait_until(lambda: "UP" in self._says("scontrol", "ping"), "slurmctld answers", limit_s=30, alive=daemon)
        for name in self.nodes:
            (self.folder / "spool" / name).mkdir()
            self._start_daemon(f"slurmd-{name}", ["slurmd", "-D", "-N", name])
        idle = ("sinfo", "-h", "-N", "-t", "idle", "-o", "%N")
        wait_until(lambda: len(set(self._says(*idle).split())) == len(self.nodes), "all nodes are idle", limit_s=30)

    def _start_accounting(self, port: int, database_port: int) -> None:
        self._start_database(database_port)
        self._write("etc/slurmdbd.conf", self._accounting_conf(port, database_port).encode(), mode=0o600)
        daemon = self._start_daemon("slurmdbd", ["slurmdbd", "-D"])
        wait_until(lambda: self._works("sacctmgr", "-n", "list", "cluster"), "slurmdbd answers", limit_s=30, alive=daemon)
        self.command("sacctmgr", "-i", "add", "cluster", CLUSTER)
        self.command("sacctmgr", "-i", "add", "account", "science", "Description=science", "Organization=lab")
        self.command("sacctmgr", "-i", "add", "user", getpass.getuser(), "Account=science", "AdminLevel=Admin")

    def _start_munge(self) -> None:
        for name in ("munge", "run/munge", "log/munge"):
            self._folder_of("munge", name)
        key = self._write("munge/munge.key", secrets.token_bytes(128), mode=0o400)
        if is_root():
            shutil.chown(key, "munge", "munge")
        self._munge_socket = self.folder / "run/munge/munge.socket"
        command = [
            "munged", "--foreground", "--force", f"--socket={self._munge_socket}", f"--key-file={key}",
            f"--pid-file={self.folder}/run/munge/munged.pid", f"--log-file={self.folder}/log/munge/munged.log",
            f"--seed-file={self.folder}/munge/seed", "--num-threads=2",
        ]  # fmt: skip
        daemon = self._start_daemon("munged", command, user="munge")
        wait_until(self._munge_socket.exists, "munged opened its socket", limit_s=10, alive=daemon)

    def _start_database(self, port: int) -> None:
        data, run = self._folder_of("mysql", "mysql"), self._folder_of("mysql", "run/mysql")
        user = ["--user=mysql"] if is_root() else []
        install = [
            "mariadb-install-db", "--no-defaults", *user, f"--datadir={data}", "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]  # fmt: skip
        subprocess.run(install, check=True, capture_output=True, timeout=60)
        # TCP, because slurmdbd's client library knows no socket but the one in /run; a promise of durability is not needed.
        command = [
            "mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={run}/mysql.sock", "--bind-address=127.0.0.1",
            f"--port={port}", "--skip-name-resolve", f"--pid-file={run}/mariadbd.pid", "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=32M", "--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0",
        ]  # fmt: skip
        daemon = self._start_daemon("mariadbd", command, user="mysql")
        client = ["mariadb", "--no-defaults", "--user=root", f"--socket={run}/mysql.sock", "-e"]
        wait_until(lambda: self._works(*client, "SELECT 1"), "mariadbd answers", limit_s=30, alive=daemon)
        self.command(
            *client,
            "CREATE DATABASE slurm; CREATE USER 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm'; "
            "GRANT ALL ON slurm.* TO 'slurm'@'127.0.0.1';",
        )

    def _accounting_conf(self, port: int, database_port: int) -> str:
        return f"""
AuthType=auth/munge
AuthInfo=socket={self._munge_socket}
{self._jwt_conf()}
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={getpass.getuser()}
LogFile={self.folder}/log/slurmdbd.log
PidFile={self.folder}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
CommitDelay=0
"""

    def _slurm_conf(self, port: int, accounting_port: int, node_ports: list[int]) -> str:
        host = socket.gethostname().split(".")[0]
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} CPUs={self._cpus} "
            f"RealMemory={self._cpus * _MEMORY_PER_CPU_MB} {self._node_options}"
            for name, node_port in zip(self.nodes, node_ports, strict=True)
        )
        lines = f"""
ClusterName={CLUSTER}
SlurmctldHost={host}(127.0.0.1)
SlurmUser={getpass.getuser()}
SlurmdUser={getpass.getuser()}
AuthType=auth/munge
AuthInfo=socket={self._munge_socket}
{self._jwt_conf()}
CredType=cred/munge
SlurmctldPort={port}
SlurmctldPidFile={self.folder}/run/slurmctld.pid
SlurmctldLogFile={self.folder}/log/slurmctld.log
StateSaveLocation={self.folder}/state
SlurmdPidFile={self.folder}/run/slurmd-%n.pid
SlurmdLogFile={self.folder}/log/slurmd-%n.log
SlurmdSpoolDir={self.folder}/spool/%n
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0
ReturnToService=2
KillWait=2
MinJobAge=600
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounting_port}
AccountingStoragePass={self._munge_socket}
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
{nodes}
PartitionName=debug Nodes={",".join(self.nodes)} Default=YES MaxTime=INFINITE State=UP
{self._more_conf}
"""
        kept = [line for line in lines.splitlines() if line.partition("=")[0] not in self._settings]
        if not self._accounting:
            kept = [line for line in kept if not line.startswith("AccountingStor")]
        return "\n".join([*(f"{name}={value}" for name, value in self._settings.items()), *kept, ""])

    def _jwt_conf(self) -> str:
        return f"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={self.folder}/etc/jwt.key" if self.has_jwt else ""

    def _start_daemon(
        self, name: str, command: list[str], *, env: dict[str, str] | None = None, user: str | None = None
    ) -> Daemon:
        log = self.folder / "log" / f"{name}-{len(self._daemons)}.out"
        daemon = Daemon(name, command, log=log, env=env or self.env, user=user)
        self._daemons.append(daemon)
        return daemon

    def _folder_of(self, user: str, name: str) -> Path:
        path = self.folder / name
        path.mkdir(mode=0o755)
        if is_root():
            shutil.chown(path, user, user)
        return path

    def _write(self, name: str, content: bytes, *, mode: int = 0o644) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        path.chmod(mode)
        return path

    def _works(self, *words: str) -> bool:
        return subprocess.run(words, env=self.env, capture_output=True, timeout=60).returncode == 0

    def _says(self, *words: str) -> str:
        return subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=60).stdout

    def _kill_left_behind(self) -> list[int]:
        """Kill jobs and what watches over them: processes whose environment names this cluster's slurm.conf; their ids."""
        mark = f"SLURM_CONF={self.folder}/etc/slurm.conf".encode()
        killed = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int(process.name) != os.getpid() and mark in (process / "environ").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
                    killed.append(int(process.name))
        return killed


def _in_memory() -> Path | None:
    """Where files are in memory and programs may be run, if there is such a place: MariaDB and Slurm wait for every write."""
    if not _MEMORY.is_dir() or not os.access(_MEMORY, os.W_OK):
        return None
    found = os.statvfs(_MEMORY)
    return _MEMORY if found.f_bavail * found.f_frsize > _ROOM_BYTES and not found.f_flag & os.ST_NOEXEC else None


def _answers_http(address: str) -> bool:
    try:
        return httpx.get(address, timeout=5).status_code < 500
    except httpx.HTTPError:
        return False
