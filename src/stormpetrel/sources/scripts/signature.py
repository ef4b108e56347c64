"""The signature of a script: which commands, modules and options it uses, in 16 numbers that similar scripts share (MinHash).

text of a script -> script_signature -> "04f1-9a3c-…"; the share of equal values is the share of what two scripts consist of that
they have in common. Names, paths, values, numbers and comments do not enter it; neither do the scheduler's directives, which are
the request. The text cannot be had back from it, but who guesses a whole script can see that its signature is the same.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Final

from stormpetrel.sources.scripts.slurm_options import needs_next_word

VALUES: Final = 16
_BYTES: Final = 2  # of each value
_MOST_LINES: Final = 5_000
_COMMAND_END: Final = re.compile(r"\|\|?|&&?|;;?|\$\(|[(){}`]")
_WORD: Final = re.compile(r"(?:\"[^\"]*\"|'[^']*'|[^\s\"'])+")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_PLAIN: Final = re.compile(r"[a-z][a-z_+-]*\Z")
_NUMBERS: Final = re.compile(r"[0-9.]+\Z")
_ENDING: Final = re.compile(r"\.[a-z][a-z0-9]{0,4}\Z")
_OF_MODULES: Final = ("module", "ml", "spack")
# What runs the command that stands behind it, and words of the shell before which nothing is said.
_LAUNCHERS: Final = frozenset(
    "srun mpirun mpiexec time exec nice nohup env sudo timeout singularity apptainer xargs .sif".split()
)
# Their options that have values in words of their own, which are no commands: how many (for srun besides those of sbatch).
_OF_CONTAINERS: Final = dict.fromkeys(
    "-B --bind -H --home -W --workdir -S --scratch -o --overlay --env --env-file --pwd -a".split(), 1
)
_OF_MPI: Final = {
    **dict.fromkeys(
        "-n -np -c -x -f -H -host --host -hosts -ppn -perhost -wdir --wdir --prefix --rank-by --bind-to --map-by".split(), 1
    ),
    **dict.fromkeys("-hostfile --hostfile -machinefile --machinefile -bind-to -map-by -bootstrap -genvlist".split(), 1),
    **dict.fromkeys("-mca --mca -genv -env".split(), 2),
}
_VALUE_COUNTS: Final = {
    "srun": dict.fromkeys("--mpi --cpu-bind --relative -r --threads -T --het-group --prolog --epilog --jobid".split(), 1),
    **dict.fromkeys(("mpirun", "mpiexec"), _OF_MPI),
    **dict.fromkeys(("singularity", "apptainer", "exec"), _OF_CONTAINERS),
    "time": {"-f": 1, "-o": 1},
    "nice": {"-n": 1},
    "env": {"-u": 1, "-C": 1},
    "sudo": {"-u": 1, "-g": 1},
    "timeout": {"-k": 1, "-s": 1, "--signal": 1, "--kill-after": 1},
    "xargs": dict.fromkeys("-n -P -I -L -d -a -s -E".split(), 1),
}
_SHELL_KEYWORDS: Final = frozenset(("if", "then", "else", "elif", "fi", "while", "until", "do", "done", "esac", "!"))
_LOOPS: Final = frozenset(("for", "select", "case", "function", "[", "[["))  # what follows is no command


def script_signature(text: str) -> str | None:
    """The signature of a shell script; None where it runs nothing that is known by a plain name."""
    tokens = {token.encode() for token in _tokens(text)}
    if not tokens:
        return None
    smallest = (min(_hash(token, place) for token in tokens) for place in range(VALUES))
    return "-".join(value[-_BYTES:].hex() for value in smallest)


def _hash(token: bytes, place: int) -> bytes:
    return blake2b(token, digest_size=8, salt=place.to_bytes(2)).digest()


def _tokens(text: str) -> set[str]:
    """The commands of a script, each alone and with each of its options, modules and endings of files."""
    tokens: set[str] = set()
    for line in text.replace("\\\n", " ").splitlines()[:_MOST_LINES]:
        if line.lstrip().startswith("#"):
            continue
        for command in _COMMAND_END.split(line):
            tokens |= _of_command(_WORD.findall(command))
    return tokens


def _of_command(words: list[str]) -> set[str]:
    """What one simple command consists of: `srun python train.py --lr 0.1` -> srun, python, python .py, python --lr."""
    tokens: set[str] = set()
    command, values = "", 0
    for word in words:
        if values:
            values -= 1
            continue
        if word.startswith("#") or (not command and word in _LOOPS):
            break
        if not command and (word in _SHELL_KEYWORDS or _ASSIGNMENT.match(word)):
            continue
        if (not command or command in _LAUNCHERS) and not word.startswith("-"):
            plain = _command(word)
            if not plain and not command:
                break
            command = plain or command
            tokens.add(command)
        elif argument := _argument(command, word):
            tokens.add(argument)
            values = _value_count(command, word)
    return tokens


def _value_count(command: str, option: str) -> int:
    """How many words behind a launcher's option are its values: in `srun -A anna python x.py` one, which is no command."""
    count = _VALUE_COUNTS.get(command, {}).get(option, 0)
    return count or int(command == "srun" and option.startswith("-") and needs_next_word(option))


def _argument(command: str, word: str) -> str | None:
    """What a word behind a command says: an option without its value, a module without its version, the ending of a file."""
    if word.startswith("-"):
        return f"{command} {word.partition('=')[0].rstrip('0123456789')}"
    module = word.partition("/")[0].lower()
    if command in _OF_MODULES and _PLAIN.match(module):
        return f"{command} {module}"
    ending = _ENDING.search(word.strip("\"'").lower())
    return f"{command} {ending[0]}" if ending else None


def _command(word: str) -> str:
    """The program of a command: its plain name, the ending of a script of the user's own, nothing where it is a variable."""
    name = PurePosixPath(word.strip("\"'").lower()).name
    if ending := _ENDING.search(name):
        return ending[0]
    plain = _NUMBERS.sub("", name)
    is_own = word.startswith(("./", "../", "~", "$"))
    return "" if is_own or not _PLAIN.match(plain) else plain
