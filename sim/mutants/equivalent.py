"""The table of random changes that provably keep the behaviour of the source (equivalent.toml)."""

import pathlib
import tomllib

import rewrite

TABLE = pathlib.Path(__file__).resolve().parent / "equivalent.toml"
KEYS = {"file", "kind", "line", "why"}


class TableError(Exception):
    """A sentence that names the entry at fault."""


def _begins_at(text, change, lines):
    """Return whether these lines are in the text, from the line on which the change begins."""
    begin = change.line(text) - 1
    found = text.splitlines()[begin : begin + len(lines)]
    return [line.strip() for line in found] == lines


def _is_named(text, change, entry):
    lines = [line.strip() for line in entry["line"].strip().splitlines()]
    if change.kind != entry["kind"] or not _begins_at(text, change, lines):
        return False
    line = change.apply(text).splitlines()[change.line(text) - 1].strip()
    return entry.get("to", line) == line


def read(source, table=TABLE):
    """Return {(file, change)} of all entries. `source` is the folder with the files of the entries."""
    found = set()
    for entry in tomllib.loads(table.read_text())["equivalent"]:
        if entry.keys() - {"to"} != KEYS:
            keys = ", ".join(sorted(KEYS))
            raise TableError(f"{table.name}: an entry has the keys {keys}, perhaps `to`, and no others")
        text = (source / entry["file"]).read_text()
        changes = rewrite.changes(text)
        matches = [(entry["file"], change) for change in changes if _is_named(text, change, entry)]
        if len(matches) != 1:
            raise TableError(
                f"{table.name}, {entry['file']}: the entry names {len(matches)} changes instead of one; "
                f"adapt it to the source:\n{entry['line']}"
            )
        found.add(matches[0])
    return found
