"""Signatures of scripts: what is run, and nothing of names, paths and numbers."""

from __future__ import annotations

import pytest

from stormpetrel.sources.scripts.job_script import parse_job_script
from stormpetrel.sources.scripts.signature import VALUES, script_signature

SCRIPT = """#!/bin/bash
#SBATCH --time=10
# trains anna's model
module purge; module load gcc/12.2 openmpi
source /home/anna/venv/bin/activate
export LR=0.1
srun -n 4 python3.11 train_v2.py --lr 0.1 --data=/home/anna/x.csv | tee out.log
for sample in 1 2; do ./run_it_7.sh $sample && /usr/bin/gzip -9 a.txt; done
"""


def agreement(one: str | None, other: str | None) -> float:
    assert one is not None
    assert other is not None
    values = list(zip(one.split("-"), other.split("-"), strict=True))
    return sum(left == right for left, right in values) / len(values)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [("anna", "bob"), ("train_v2", "evaluate"), ("0.1", "3e-4"), ("12.2", "13.1"), ("-n 4", "-n 64"), ("--time=10", "--time=9"),
     ("python3.11", "python3.9"), ("sample", "file"), ("out.log", "b.log"), ("run_it_7", "other")],
)  # fmt: skip
def test_names_paths_numbers_and_the_request_do_not_enter(was, becomes):
    assert script_signature(SCRIPT.replace(was, becomes)) == script_signature(SCRIPT)


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("srun -A chemistry -p gpu --time 10:00 python a.py", "srun -A physics -p cpu --time 9:00 python a.py"),
        ("srun --mpi pmix ./a.out x.nc", "srun --mpi none ./b.out y.nc"),
        ("mpirun -np 4 --hostfile hosts --mca btl tcp lmp -in a.in", "mpirun -np 8 --hostfile nodes --mca pml ucx lmp -in b.in"),
        (
            "singularity exec -B data --nv anna.sif python a.py --lr 1",
            "singularity exec -B scratch --nv bob.sif python a.py --lr 2",
        ),
        ("env -u HOME sudo -u anna nice -n 5 gzip a.txt", "env -u USER sudo -u bob nice -n 9 gzip a.txt"),
    ],
)
def test_the_value_of_an_option_of_a_launcher_is_no_command(line, other):
    assert script_signature(line) == script_signature(other)


@pytest.mark.parametrize(
    "launcher", ["srun -A chem -n 4", "mpirun -np 4", "apptainer exec --nv -B data a.sif", "time", "srun --exact -u"]
)
def test_what_a_launcher_starts_is_signed(launcher):
    scripts = (f"{launcher} {rest}" for rest in ("python train.py --lr 1 --epochs 2", "gmx -s a.tpr -deffnm b -cpi c.cpt"))
    alone = script_signature("python train.py --lr 1 --epochs 2")
    assert agreement(alone, script_signature(next(scripts))) > agreement(alone, script_signature(next(scripts))) + 0.2


def test_another_option_changes_a_little_and_another_program_everything():
    nearly = agreement(script_signature(SCRIPT), script_signature(SCRIPT.replace("--lr", "--resume --lr")))
    other = "#!/bin/sh\nmodule load gromacs\ngmx mdrun -s a.tpr -deffnm b\ncp -r result /scratch\n"
    assert nearly > 0.6
    assert agreement(script_signature(SCRIPT), script_signature(other)) < 0.2


def test_the_signature_holds_no_word_of_the_script():
    signature = script_signature(SCRIPT)
    assert signature is not None
    assert len(signature.split("-")) == VALUES
    assert all(int(value, 16) < 1 << 16 for value in signature.split("-"))


@pytest.mark.parametrize("text", ["", "#!/bin/sh\n", "# only words\n", "A=1\n", "$PROGRAM 1\n", "((('\"\n"])
def test_a_script_that_runs_nothing_known_has_none(text):
    assert script_signature(text) is None


def test_a_script_that_is_checked_is_signed_and_a_submit_description_is_not():
    assert parse_job_script(SCRIPT, name="job.sh").signature == script_signature(SCRIPT)
    assert parse_job_script("executable = /bin/true\nqueue\n", name="a.sub", kind="condor").signature is None
