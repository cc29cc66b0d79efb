"""Programs with changed source files: compile these files with the build's own commands, and link again.

Build.__init__ updates the simulator in the build folder, if it has one; nothing else there changes. Build the
library and the tests first. A workshop is a copy of FOLDERS that consists of symbolic links. Changed files
replace their links in it, so the other files see a changed header too.
"""

import contextlib
import json
import os
import pathlib
import re
import shlex
import subprocess

SIMULATOR = "sim/remo-sim-mutable"
SIMULATOR_OBJECTS = "sim/libremo_sim_mutable_floors.a.p/"
SIMULATOR_CASES = "sim/libremo_sim_mutable.a.p/"
LIBRARY = "src/libremo.a"
LIBRARY_OBJECTS = "src/libremo.so"
FOLDERS = ("src", "examples")


class CompileError(Exception):
    """The changed source does not compile; the text is that of the compiler."""


class Build:
    """The records of a build folder: the commands that compiled its objects and linked its programs."""

    def __init__(self, folder, source):
        self.folder = pathlib.Path(folder).resolve()
        self.source = pathlib.Path(source).resolve()
        entries = json.loads((self.folder / "compile_commands.json").read_text())
        self._compile = {entry["output"]: entry for entry in entries}
        self.has_simulator = any(one.startswith(SIMULATOR_OBJECTS) for one in self._compile)
        if self.has_simulator:
            self._bring_up_to_date(SIMULATOR)
        self._readers = self._read_dependencies()
        self._link = {}

    def _bring_up_to_date(self, target):
        result = subprocess.run(["ninja", "-C", self.folder, target], capture_output=True, text=True)
        if result.returncode != 0:
            raise CompileError(f"{target} cannot be built:\n{result.stdout}{result.stderr}")

    def _ninja(self, *arguments):
        return subprocess.run(
            ["ninja", "-C", self.folder, *arguments], check=True, capture_output=True, text=True
        ).stdout

    def _read_dependencies(self):
        """Return {source file: objects that are compiled from it or include it}."""
        readers = {}
        for line in self._ninja("-t", "deps").splitlines():
            if line and not line.startswith(" "):
                output = line.split(":")[0]
            elif line:
                path = os.path.relpath(os.path.join(self.folder, line.strip()), self.source)
                readers.setdefault(os.path.normpath(path), []).append(output)
        return readers

    def objects_of(self, files, library, users=()):
        """Return the objects of a library that must be compiled if these files change. With `users`, which
        are files and folders, only those whose source file is among them."""
        objects = {one for file in files for one in self._readers.get(file, [])}
        objects = {one for one in objects if one.startswith(library) and one in self._compile}
        return sorted(one for one in objects if not users or self._is_among(one, users))

    def _is_among(self, one, users):
        path = pathlib.Path(os.path.normpath(self.folder / self._compile[one]["file"]))
        return any(self.source / user in (path, *path.parents) for user in users)

    def compile_command(self, one):
        return shlex.split(self._compile[one]["command"]), self._compile[one]["file"]

    def link_command(self, target):
        if target not in self._link:
            output = self._ninja("-t", "commands", "-s", target)
            self._link[target] = shlex.split(output.splitlines()[-1])
        return self._link[target]


class Workshop:
    """A folder of one worker: the copy of FOLDERS, and the objects and programs made from it."""

    def __init__(self, build, folder):
        self.build = build
        self.folder = pathlib.Path(folder)
        for path in (path for folder in FOLDERS for path in (build.source / folder).rglob("*")):
            if path.is_file():
                link = self.folder / path.relative_to(build.source)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path)

    @contextlib.contextmanager
    def changed(self, texts):
        """Replace files for a while: {path relative to the top of the source: text}."""
        try:
            for file, text in texts.items():
                (self.folder / file).unlink()
                (self.folder / file).write_text(text)
            yield
        finally:
            for file in texts:
                (self.folder / file).unlink(missing_ok=True)
                (self.folder / file).symlink_to(self.build.source / file)

    def _moved(self, argument):
        """Return an argument of the compiler with the build's src/ replaced by the copy, as a list. The copy
        precedes the top of the source, so that "examples/file.h" is that of the copy."""
        option, path = ("-I", argument[2:]) if argument.startswith("-I") else ("", argument)
        path = pathlib.Path(os.path.normpath(self.build.folder / path))
        source = self.build.source / "src"
        if option and path == self.build.source:
            return [f"-I{self.folder}", argument]
        if path != source and source not in path.parents:
            return [argument]
        return [f"{option}{self.folder / path.relative_to(self.build.source)}"]

    def compile(self, one, suffix="", options=()):
        """Compile one object of the build from the copy, with further options, and return its path."""
        command, _ = self.build.compile_command(one)
        target = self.folder / "objects" / (one.replace("/", "_") + suffix)
        target.parent.mkdir(exist_ok=True)
        arguments = iter([moved for argument in command for moved in self._moved(argument)])
        kept = []
        for argument in arguments:
            if argument in ("-o", "-MQ", "-MF"):
                next(arguments)
            elif argument != "-MD":
                kept.append(argument)
        self._call(kept + ["-w", "-g0", *options, "-o", str(target)])
        return target

    def link(self, target, objects):
        """Link a program of the build with {object of the build: object instead}, and return its path."""
        program = self.folder / pathlib.Path(target).name
        command = list(self.build.link_command(target))
        command[command.index("-o") + 1] = str(program)
        members = [str(path) for one, path in objects.items() if one not in command]
        command = [str(objects.get(argument, argument)) for argument in command]
        if LIBRARY in command:  # before the archive, so its members with the same names are not used
            at = command.index(LIBRARY)
            command[at:at] = members
        self._call(command)
        return program

    def _call(self, command):
        result = subprocess.run(
            command,
            cwd=self.build.folder,
            env={**os.environ, "CCACHE_DISABLE": "1"},  # it would find nothing: the folder is a new one
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if result.returncode != 0:
            raise CompileError(re.sub("\x1b\\[[0-9;]*[mK]", "", result.stdout))
