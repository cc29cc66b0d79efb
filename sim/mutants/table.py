"""The tables of mutants (*.toml): read them, check them, and apply them to the text of the source.

A mutant omits or changes one step that a proof needs. An entry has a name, one line of reason, a file, a
text that occurs in the file exactly once, its replacement, and the cases that detect it.
"""

import dataclasses
import pathlib
import tomllib

FOLDER = pathlib.Path(__file__).resolve().parent
KEYS = {"name", "why", "file", "from", "to", "caught_by", "also", "users"}
EDIT_KEYS = {"file", "from", "to"}


class TableError(Exception):
    """A sentence that names the entry at fault."""


@dataclasses.dataclass(frozen=True)
class Edit:
    file: str  # relative to the top of the source
    old: str
    new: str


@dataclasses.dataclass(frozen=True)
class Catcher:
    """An object, and optionally the case, network and fault that detect the mutant soonest."""

    object: str
    case: str | None = None
    profile: str | None = None
    fault: str | None = None

    def __str__(self):
        return " ".join(word for word in (self.object, self.case, self.profile, self.fault) if word)


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    why: str
    edits: tuple[Edit, ...]
    catchers: tuple[Catcher, ...]
    users: tuple[str, ...]  # the files and folders that are compiled with the change; empty: all


def _catcher(text, where):
    words = text.split()
    if len(words) not in (1, 4):
        raise TableError(f"{where}: '{text}' is neither 'OBJECT' nor 'OBJECT CASE PROFILE FAULT'")
    return Catcher(*words)


def _edit(entry, where):
    lacking = sorted(EDIT_KEYS - entry.keys())
    if lacking:
        raise TableError(f"{where}: the key {lacking[0]} is missing")
    if entry["from"] == entry["to"]:
        raise TableError(f"{where}: the replacement equals the text")
    return Edit(entry["file"], entry["from"], entry["to"])


def _mutant(entry, table):
    where = f"{table}, mutant {entry.get('name', 'without a name')}"
    lacking, unknown = sorted(KEYS - {"also", "users"} - entry.keys()), sorted(entry.keys() - KEYS)
    if lacking or unknown:
        fault = f"the key {lacking[0]} is missing" if lacking else f"the key {unknown[0]} is unknown"
        raise TableError(f"{where}: {fault}")
    edits = tuple(_edit(part, where) for part in [entry, *entry.get("also", [])])
    catchers = tuple(_catcher(text, where) for text in entry["caught_by"])
    if not catchers:
        raise TableError(f"{where}: caught_by is empty")
    return Mutant(entry["name"], entry["why"], edits, catchers, tuple(entry.get("users", [])))


def parse(text, table):
    """Return the mutants of one table, given its text and the name for error sentences."""
    try:
        entries = tomllib.loads(text).get("mutant", [])
    except tomllib.TOMLDecodeError as error:
        raise TableError(f"{table}: {error}") from error
    return [_mutant(entry, table) for entry in entries]


def read_all(folder=FOLDER):
    """Return the mutants of all tables, sorted by name."""
    mutants = {}
    for path in sorted(folder.glob("*.toml")):
        for mutant in parse(path.read_text(), path.name):
            if mutant.name in mutants:
                raise TableError(f"{path.name}, mutant {mutant.name}: the name occurs twice")
            mutants[mutant.name] = mutant
    return [mutants[name] for name in sorted(mutants)]


def apply(mutant, read):
    """Return {file: changed text}. `read` returns the text of a file of the source."""
    texts = {}
    for edit in mutant.edits:
        where = f"mutant {mutant.name}, file {edit.file}"
        try:
            text = texts.get(edit.file) or read(edit.file)
        except OSError as error:
            raise TableError(f"{where}: {error.strerror}; correct the path in the table") from error
        found = text.count(edit.old)
        if found != 1:
            raise TableError(
                f"{where}: the text occurs {found} times instead of once; adapt the entry to the source:\n"
                f"{edit.old.rstrip()}"
            )
        texts[edit.file] = text.replace(edit.old, edit.new)
    return texts


def check_catchers(mutants, listing):
    """Check that each named case and network exists. `listing` is the output of remo sim --list."""
    rows = [line.split() for line in listing.splitlines()]
    cases = {(row[1], row[2]) for row in rows if row[0] == "case"}
    profiles = {row[1] for row in rows if row[0] == "profile"}
    objects = {name for name, _ in cases}
    for mutant in mutants:
        for catcher in mutant.catchers:
            known = catcher.object in objects and (
                not catcher.case
                or ((catcher.object, catcher.case) in cases and catcher.profile in profiles)
            )
            if not known:
                raise TableError(f"mutant {mutant.name}: there is no case '{catcher}'; see remo sim --list")
