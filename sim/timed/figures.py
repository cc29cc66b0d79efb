"""Common parts of the scripts that draw a paper's figures from benchmarks on the simulated network."""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]


class Simulator:
    """Runs benchmarks, and remembers their results in a file, if there is one."""

    def __init__(self, name, command, seconds, file):
        self.name = name  # of the script
        self.command = command
        self.seconds = seconds
        self.file = file
        self.results = {}
        if file and file.exists():
            for line in file.read_text().splitlines():
                key, result = json.loads(line)
                self.results[key] = result

    def run_all(self, bench, variant, nodes, threads=1, window=1, **options):
        """Run a point, and return all its results."""
        arguments = [bench, f"--nodes={nodes}", f"--threads={threads}", f"--window={window}"]
        arguments += [f"--{name}={value}" for name, value in options.items()]
        arguments += [f"--seconds={self.seconds}", f"--variant={variant}"]
        key = " ".join(arguments)
        if key not in self.results:
            command = [self.command, "bench", "--fabric=sim", "--json", *arguments]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            found = [line for line in lines if "p50_ns" in line]
            if done.returncode != 0 or not found:
                sys.exit(f"{self.name}: cannot simulate {key}: status {done.returncode}")
            self.results[key] = found
            if self.file:
                with self.file.open("a") as file:
                    file.write(json.dumps([key, found]) + "\n")
        return self.results[key]

    def run(self, *arguments, **options):
        """Run a point that has one result, and return it."""
        (result,) = self.run_all(*arguments, **options)
        return result

    def rates(self, bench, variant, all_nodes, threads, window, **options):
        """Return the rate of a node, in millions a second, for each number of nodes, which all operate."""
        rates = []
        for nodes in all_nodes:
            result = self.run(bench, variant, nodes, threads, window, active=nodes, **options)
            rates.append(result["ops_per_s"] / nodes / 1e6)
        return rates


def quoted(text):
    return "'" + str(text).replace("'", "''") + "'"


def draw(file, title, ylabel, xticks, curves, xlabel="nodes", style="linespoints lw 2 pt 7"):
    """Draw curves (name, values) over xticks."""
    script = [
        "set terminal svg size 640,420 noenhanced font 'sans,11' background rgb 'white'",
        f"set output {quoted(file)}",
        f"set title {quoted(title + ' (simulated network)')}",
        f"set ylabel {quoted(ylabel)}",
        f"set xlabel {quoted(xlabel)}",
        "set bmargin 6",
        "set yrange [0:*]",
        "set grid",
        "set key below",
        f"set xrange [-0.3:{len(xticks) - 0.7}]",
        "set xtics (" + ", ".join(f"{quoted(tick)} {i}" for i, tick in enumerate(xticks)) + ")",
    ]
    for number, (_, values) in enumerate(curves):
        rows = "\n".join(f"{i} {value}" for i, value in enumerate(values))
        script.append(f"$curve{number} << END\n{rows}\nEND")
    script.append(
        "plot "
        + ", ".join(
            f"$curve{number} using 1:2 with {style} title {quoted(name)}"
            for number, (name, _) in enumerate(curves)
        )
    )
    done = subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"cannot draw {file}: gnuplot ended with {done.returncode}")


def compare(what, paper, simulated):
    print(f"{what:66} {paper:>6} {simulated:8.2f}", flush=True)


def run_figures(name, paper, doc, seconds, figures, make_sizes):
    """The main function of a script: parse its arguments, and draw. Each point takes `seconds` of simulated
    time. `figures`: functions of the simulator, the folder and what make_sizes(quick) returns."""
    parser = argparse.ArgumentParser(usage=doc.split("\n\n")[1], description=doc.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    command = options.build / "cli" / "remo"
    if not command.exists():
        sys.exit(f"{name}: cannot find {command}: it is not built; run ./remo demo, which builds it")
    if not shutil.which("gnuplot"):
        sys.exit(f"{name}: cannot draw: gnuplot is not installed; apt-get install gnuplot-nox")
    options.folder.mkdir(parents=True, exist_ok=True)
    simulator = Simulator(name, command, seconds, options.json)
    print(f"{'':66} {paper:>6} simulated")
    for figure in figures:
        figure(simulator, options.folder, make_sizes(options.quick))
