"""The table of random changes that provably keep the behaviour of the source (equivalent.toml)."""

import pathlib
import tomllib

import rewrite

TABLE = pathlib.Path(__file__).resolve().parent / "equivalent.toml"
KEYS = {"file", "kind", "line", "why"}


class TableError(Exception):
    """A sentence that names the entry at fault."""


def _line(text, change):
    return text.splitlines()[change.line(text) - 1].strip()


def read(source, table=TABLE):
    """Return {(file, change)} of all entries. `source` is the folder with the files of the entries."""
    found = set()
    for entry in tomllib.loads(table.read_text())["equivalent"]:
        if entry.keys() != KEYS:
            raise TableError(f"{table.name}: an entry has the keys {', '.join(sorted(KEYS))}, and no others")
        text = (source / entry["file"]).read_text()
        matches = [
            (entry["file"], change)
            for change in rewrite.changes(text)
            if change.kind == entry["kind"] and _line(text, change) == entry["line"]
        ]
        if len(matches) != 1:
            raise TableError(
                f"{table.name}, {entry['file']}: the entry names {len(matches)} changes instead of one; "
                f"adapt it to the source:\n{entry['line']}"
            )
        found.add(matches[0])
    return found
