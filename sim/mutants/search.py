"""Search a changed program for a failure: run the simulator, and judge how it ended."""

import dataclasses
import subprocess

FAULTS = ("crash", "zombie", "cut", "lose", "fail-post", "fail-completion", "fail-allocation")


@dataclasses.dataclass(frozen=True)
class Verdict:
    caught: bool
    text: str  # the failure, or why there is none


def run(command, seconds, folder):
    """Run a program that should fail. Neither a signal nor an endless run passes."""
    try:
        result = subprocess.run(
            command, cwd=folder, timeout=seconds, capture_output=True, text=True, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return Verdict(True, f"still running after {seconds} s")
    lines = (result.stdout.strip() or result.stderr.strip()).splitlines()
    if result.returncode < 0:
        return Verdict(True, f"ended by signal {-result.returncode}: {lines[-1] if lines else ''}")
    return Verdict(result.returncode != 0, lines[0] if lines else "")


def search(program, catcher, schedules, seconds, folder):
    """Run a case, or all cases of an object, until the first failure."""
    command = [program, "--search", "--object", catcher.object, "--schedules", str(schedules)]
    if catcher.case:
        command += ["--case", catcher.case, "--profile", catcher.profile]
    if catcher.fault and catcher.fault != "none":
        command.append(f"--{catcher.fault}")
    elif not catcher.case:
        command.append("--faults")
    verdict = run(command, seconds, folder)
    if verdict.caught and verdict.text.startswith("remo sim:"):
        raise RuntimeError(f"{' '.join(map(str, command))}: {verdict.text}")
    return verdict
