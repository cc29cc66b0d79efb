"""Run a changed program, and judge how it ended."""

import dataclasses
import os
import re
import signal
import subprocess

SKIPPED = 77


class RequestError(Exception):
    """The simulator has nothing to run, for example since the case has no such fault."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    caught: bool
    text: str  # the failure, or the first line of the output
    is_late: bool = False  # the limit of time ended the program
    schedules: int | None = None  # of the simulator, until the failure; None: unknown


def run(command, seconds, folder, environment=None):
    """Run a program that should fail. A signal or an endless run is a failure too.

    A program that exceeds the limit of time runs a second time, because other programs may have delayed it.
    """
    verdict = _run_once(command, seconds, folder, environment)
    return _run_once(command, seconds, folder, environment) if verdict.is_late else verdict


def _run_once(command, seconds, folder, environment):
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        # Its children too: they have the ends of its pipes.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Verdict(True, f"still running after {seconds:.0f} s, twice", is_late=True)
    lines = (output.strip() or errors.strip()).splitlines() or [""]
    if process.returncode < 0:
        return Verdict(True, f"ended by signal {-process.returncode}: {lines[-1]}")
    return Verdict(process.returncode not in (0, SKIPPED), lines[0])


def search(program, catcher, schedules, seconds, folder, options=()):
    """Run a case, or all cases of an object, until the first failure."""
    command = [program, "--search", "--object", catcher.object, "--schedules", str(schedules), *options]
    if catcher.case:
        command += ["--case", catcher.case, "--profile", catcher.profile]
    if catcher.fault and catcher.fault != "none":
        command.append(f"--{catcher.fault}")
    verdict = run(command, seconds, folder)
    if verdict.caught and verdict.text.startswith("remo sim:"):
        raise RequestError(verdict.text)
    reported = re.search(r" at schedule (\d+): ", verdict.text) if verdict.caught else None
    return dataclasses.replace(verdict, schedules=int(reported[1])) if reported else verdict
