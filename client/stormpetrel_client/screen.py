"""`stormpetrel top` on a terminal: look, question -> show -> a page that is renewed until q is pressed.

A thread asks; the page is drawn when there is something new, a key or another size, and otherwise the program sleeps. A service
that goes away leaves its last answer on the page, with a line that says so, until it is back.
"""

from __future__ import annotations

import curses
import locale
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from stormpetrel_client.page import SORTS, Question, Row, Section, fitted, head_line, sections_of, table_lines
from stormpetrel_client.render import plain
from stormpetrel_client.where import ClientError

Look = Callable[[Question], Mapping[str, Any]]
More = Callable[[str, str], Iterable[str]]  # kind and key of a row -> lines about it
_KEYS = "q quit  Tab section  ↑↓ row  Enter more  s sort  o open  / find  r now  ? keys"
_HELP = (
    "q            quit, or back from a page like this one",
    "Tab, ← →     the next section, the one before",
    "↑ ↓, j k     the row above, below; also Page Up, Page Down, Home, End",
    "Enter        more about the row: why a job failed, what an incident rests on",
    "s            sort the jobs: newest, risk, name, longest",
    "o            only jobs that wait or run, or all",
    "/            find: only rows that hold a text; empty shows all again",
    "r            ask now, without waiting for the next turn",
)
_GONE = 50
_ENTER = (ord("\n"), ord("\r"), curses.KEY_ENTER)
_FEWEST_LINES, _FEWEST_COLUMNS = 4, 20


class Asker(threading.Thread):
    """Asks every so often, and at once when something else is wanted; `news` is called when an answer or an error is there."""

    def __init__(self, look: Look, more: More, *, every_s: float, news: Callable[[], None]) -> None:
        super().__init__(name="asker", daemon=True)  # a question under way keeps nobody from leaving
        self._look, self._more, self._every_s, self._news = look, more, every_s, news
        self._wake, self._lock = threading.Event(), threading.Lock()
        self._question, self._wanted = Question(), (0, "", "")
        self.answer: Mapping[str, Any] = {}
        self.answered = Question()
        self.problem, self.problem_since = "", 0.0
        self.details: tuple[int, list[str]] = (0, [])

    def ask(self, question: Question) -> None:
        """Ask this from now on, and at once."""
        with self._lock:
            self._question = question
        self._wake.set()

    def ask_more(self, number: int, kind: str, key: str) -> None:
        """Ask for more about a row; `details` has the number and the lines then."""
        with self._lock:
            self._wanted = (number, kind, key)
        self._wake.set()

    def run(self) -> None:
        """Ask until the program ends."""
        while True:
            self._wake.clear()
            with self._lock:
                question, wanted = self._question, self._wanted
            if wanted[0] > self.details[0]:
                self.details = (wanted[0], self._lines_about(wanted[1], wanted[2]))
                self._news()
            self._ask_once(question)
            self._news()
            self._wake.wait(self._every_s)

    def _ask_once(self, question: Question) -> None:
        try:
            answer = self._look(question)
        except Exception as error:  # also what nobody has thought of: the page says it, and it is asked again
            self.problem_since = self.problem_since or time.time()
            self.problem = plain(str(error) if isinstance(error, ClientError) else f"{type(error).__name__}: {error}")
        else:
            self.answer, self.answered, self.problem, self.problem_since = answer, question, "", 0.0

    def _lines_about(self, kind: str, key: str) -> list[str]:
        try:
            return list(self._more(kind, key))
        except Exception as error:
            return [plain(str(error))]


class Page:
    """What is on the terminal: the section and row somebody is at, a text that is being typed, a page about one row."""

    def __init__(self, window: Any, asker: Asker) -> None:
        self._window, self._asker = window, asker
        self.question = Question()
        self._section = ""
        self._places: dict[str, tuple[int, str]] = {}  # of each section the row somebody is at, and what it is about
        self._typed: str | None = None
        self._about: list[str] | None = None
        self._number = self._top = 0
        self._shown: list[Section] = []
        on, back = partial(self._step_section, 1), partial(self._step_section, -1)
        self._acts: dict[int, Callable[[], None]] = {
            **dict.fromkeys((ord("\t"), curses.KEY_RIGHT, ord("l")), on),
            **dict.fromkeys((curses.KEY_BTAB, curses.KEY_LEFT, ord("h")), back),
            **dict.fromkeys(_ENTER, self._open),
            ord("?"): self._help,
            ord("/"): self._find,
            ord("r"): lambda: self._ask(self.question),
            ord("s"): self._sort,
            ord("o"): lambda: self._ask(self.question._replace(is_open=not self.question.is_open)),
        }

    def draw(self) -> None:
        """Draw everything; only what has changed is sent to the terminal."""
        lines, columns = self._window.getmaxyx()
        self._window.erase()
        if lines < _FEWEST_LINES or columns < _FEWEST_COLUMNS:
            self._put(0, "too small", columns)
        elif self._about is not None:
            self._draw_about(lines, columns)
        else:
            self._draw_sections(lines, columns)
        self._window.refresh()

    def take(self, key: int) -> bool:
        """Do what a key says; False where it means to leave."""
        if self._typed is not None:
            self._type(key)
        elif self._about is not None:
            return self._scroll(key)
        elif key in (ord("q"), ord("Q")):
            return False
        elif key in self._acts:
            self._acts[key]()
        else:
            self._move(key)
        return True

    def _help(self) -> None:
        self._about, self._top = list(_HELP), 0

    def _find(self) -> None:
        self._typed = self.question.text

    def _sort(self) -> None:
        names = list(SORTS)
        self._ask(self.question._replace(sort=names[(names.index(self.question.sort) + 1) % len(names)]))

    def _ask(self, question: Question) -> None:
        self.question = question
        self._asker.ask(question)

    def _type(self, key: int) -> None:
        typed = self._typed or ""
        if key in _ENTER:
            self._typed = None
            self._ask(self.question._replace(text=typed.strip()))
        elif key == 27:  # Escape: as it was
            self._typed = None
        elif key in (curses.KEY_BACKSPACE, 127, 8):
            self._typed = typed[:-1]
        elif 32 <= key < 127 and len(typed) < 100:
            self._typed = typed + chr(key)

    def _focus(self) -> Section | None:
        return next(
            (section for section in self._shown if section.name == self._section), self._shown[0] if self._shown else None
        )

    def _step_section(self, by: int) -> None:
        names = [section.name for section in self._shown]
        focus = self._focus()
        if focus is not None:
            self._section = names[(names.index(focus.name) + by) % len(names)]

    def _move(self, key: int) -> None:
        focus = self._focus()
        if focus is None or not focus.rows:
            return
        last, row = len(focus.rows) - 1, self._row_of(focus)
        steps = {
            curses.KEY_DOWN: row + 1, ord("j"): row + 1, curses.KEY_UP: row - 1, ord("k"): row - 1, curses.KEY_NPAGE: row + 10,
            curses.KEY_PPAGE: row - 10, curses.KEY_HOME: 0, curses.KEY_END: last,
        }  # fmt: skip
        row = max(0, min(last, steps.get(key, row)))
        self._places[focus.name] = (row, focus.rows[row].key)

    def _row_of(self, section: Section) -> int:
        """Where somebody is in a section: at the same job as before, wherever it stands now; else at the same height."""
        row, key = self._places.get(section.name, (0, ""))
        same = (place for place, one in enumerate(section.rows) if key and one.key == key)
        return next(same, max(0, min(row, len(section.rows) - 1)))

    def _open(self) -> None:
        focus = self._focus()
        if focus is None or not focus.rows:
            return
        row = focus.rows[self._row_of(focus)]
        if row.kind:
            self._number += 1
            self._about, self._top = ["…"], 0
            self._asker.ask_more(self._number, row.kind, row.key)

    def take_details(self) -> None:
        """Show what was asked for about a row, where it is there and still wanted."""
        number, lines = self._asker.details
        if self._about == ["…"] and number == self._number:
            self._about = lines

    def _scroll(self, key: int) -> bool:
        height = max(1, self._window.getmaxyx()[0] - 1)
        steps = {
            curses.KEY_DOWN: 1, ord("j"): 1, curses.KEY_UP: -1, ord("k"): -1, curses.KEY_NPAGE: height, ord(" "): height,
            curses.KEY_PPAGE: -height,
        }  # fmt: skip
        if key in steps:
            self._top = max(0, self._top + steps[key])
        else:
            self._about = None
        return True

    def _draw_about(self, lines: int, columns: int) -> None:
        wrapped = [part for line in self._about or [] for part in _wrapped(line, columns)]
        self._top = max(0, min(self._top, len(wrapped) - (lines - 1)))
        for place, line in enumerate(wrapped[self._top : self._top + lines - 1]):
            self._put(place, line, columns)
        more = f"  {self._top + lines - 1} of {len(wrapped)} lines" if len(wrapped) > lines - 1 else ""
        self._put(lines - 1, f"↑↓ scroll  q back{more}", columns, curses.A_DIM)

    def _draw_sections(self, lines: int, columns: int) -> None:
        asker = self._asker
        self._put(0, head_line(asker.answer), columns, curses.A_BOLD | _tone(str(asker.answer.get("level") or "")))
        first = 1
        if asker.problem:
            since = time.strftime("%H:%M:%S", time.localtime(asker.problem_since))
            self._put(1, f"No answer since {since}: {asker.problem}", columns, _tone("problem"))
            first = 2
        self._shown = sections_of(asker.answer, asker.answered) if asker.answer else []
        focus = self._focus()
        for section, top, height in _placed(self._shown, focus, first, lines - 1):
            self._draw_section(section, top, height, columns, is_focus=section is focus)
        self._put(lines - 1, self._foot(columns), columns, curses.A_DIM)

    def _draw_section(self, section: Section, top: int, height: int, columns: int, *, is_focus: bool) -> None:
        self._put(top, f"{'▸' if is_focus else ' '} {section.title}", columns, curses.A_BOLD)
        if height < 2:
            return
        if not section.rows:
            self._put(top + 1, f"    {section.nothing}", columns, curses.A_DIM)
            return
        room = max(1, height - 2)
        at = self._row_of(section)
        begin = max(0, min(at - room // 2, len(section.rows) - room)) if is_focus else 0
        rows: list[Row] = section.rows[begin : begin + room]
        header, *drawn = table_lines(section.header, rows, columns - 4)
        self._put(top + 1, f"    {header}", columns, curses.A_DIM)
        for place, (row, line) in enumerate(zip(rows, drawn)):
            if place + 2 < height:
                is_here = is_focus and begin + place == at
                self._put(top + 2 + place, f"    {line}", columns, _tone(row.tone) | (curses.A_REVERSE if is_here else 0))

    def _foot(self, columns: int) -> str:
        if self._typed is not None:
            return f"find: {self._typed}▏"[-columns:]
        chosen = [
            f"by {self.question.sort}" if self.question.sort != "newest" else "",
            "open only" if self.question.is_open else "",
        ]
        chosen.append(f"with “{self.question.text}”" if self.question.text else "")
        state = ", ".join(filter(None, chosen))
        return f"{state}  |  {_KEYS}" if state else _KEYS

    def _put(self, line: int, text: str, columns: int, style: int = 0) -> None:
        encoding = locale.getpreferredencoding(False)
        shown = fitted(text, columns - (line == self._window.getmaxyx()[0] - 1))  # the last corner cannot be written
        try:
            self._window.addstr(line, 0, shown.encode(encoding, "replace").decode(encoding), style)
        except curses.error:
            return  # the terminal has become smaller just now; it is drawn again


def _placed(sections: list[Section], focus: Section | None, first: int, end: int) -> list[tuple[Section, int, int]]:
    """Where each section stands: the one somebody is at gets what it needs first; what has no room is left out."""
    room = end - first
    needs = {section.name: 3 + len(section.rows) if section.rows else 3 for section in sections}
    heights = dict.fromkeys(needs, 0)
    order = sorted(sections, key=lambda section: section is not focus)
    for least in (4, max(needs.values(), default=0)):
        for section in order:
            more = max(0, min(least, needs[section.name]) - heights[section.name])
            given = min(more, room)
            if heights[section.name] or given >= 2:
                heights[section.name] += given
                room -= given
    placed, top = [], first
    for section in sections:
        if heights[section.name]:
            placed.append((section, top, heights[section.name]))
            top += heights[section.name]
    return placed


def _wrapped(line: str, columns: int) -> list[str]:
    """A line cut into lines that fit, between words where there are any."""
    indent = " " * min(len(line) - len(line.lstrip()), columns // 2)
    parts, rest = [], line
    while len(rest) > columns:
        at = rest.rfind(" ", len(indent) + 1, columns)
        at = columns if at < 0 else at
        parts.append(rest[:at])
        rest = indent + rest[at:].lstrip()
    return [*parts, rest]


_COLOURS = {"problem": 1, "warning": 2, "ok": 3}


def _tone(name: str) -> int:
    if name == "dim":
        return curses.A_DIM
    return curses.color_pair(_COLOURS[name]) if name in _COLOURS and _has_colours() else 0


def _has_colours() -> bool:
    return curses.has_colors() and not os.environ.get("NO_COLOR")


def show(look: Look, more: More, *, every_s: float) -> None:
    """Show the page until somebody leaves it; ClientError where there is no terminal to show it on."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ClientError("There is no terminal to show the page on.", "Print it once: stormpetrel top --once, or --json")
    locale.setlocale(locale.LC_ALL, "")
    os.environ.setdefault("ESCDELAY", "25")
    try:
        curses.setupterm()
    except curses.error as error:
        raise ClientError(
            f"This terminal is not known: {error}.", "Set TERM, or print it once: stormpetrel top --once"
        ) from error
    curses.wrapper(_loop, look, more, every_s)


def _loop(window: Any, look: Look, more: More, every_s: float) -> None:
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)

    def wake() -> None:
        try:
            os.write(writing, b".")
        except (BlockingIOError, OSError):
            return  # it is awake already, or over

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    signal.signal(signal.SIGWINCH, lambda *_: wake())
    _prepare(window)
    asker = Asker(look, more, every_s=every_s, news=wake)
    page = Page(window, asker)
    asker.start()
    empty = 0  # times that there was something to read, and nothing was: the terminal is gone
    while empty < _GONE:
        page.take_details()
        page.draw()
        ready, _, _ = select.select([sys.stdin.fileno(), reading], [], [])
        if reading in ready:
            os.read(reading, 4096)
            _take_size(window)
        keys = list(iter(window.getch, -1))
        empty = empty + 1 if not keys and sys.stdin.fileno() in ready else 0
        if not all(page.take(key) for key in keys if key != curses.KEY_RESIZE):
            return


def _prepare(window: Any) -> None:
    window.nodelay(True)
    window.keypad(True)
    if _has_colours():
        curses.use_default_colors()
        for number, colour in ((1, curses.COLOR_RED), (2, curses.COLOR_YELLOW), (3, curses.COLOR_GREEN)):
            curses.init_pair(number, colour, -1)
    try:
        curses.curs_set(0)
    except curses.error:
        return  # a terminal that cannot hide its cursor


def _take_size(window: Any) -> None:
    columns, lines = os.get_terminal_size(sys.stdout.fileno())
    if window.getmaxyx() != (lines, columns):
        curses.resizeterm(lines, columns)
        window.clear()
