#!/usr/bin/env bash
# Build the wheel with meson-python, install it in an empty folder, and run a program with it.
#   test_wheel.sh PYTHON PACKAGE-FOLDER LIBRARY REMO
set -eu

package=$2 library=$(realpath "$3") remo=$(realpath "$4")
python=
# Debian's packages belong to Debian's interpreter, which may not be the first one on PATH.
for candidate in "$1" /usr/bin/python3; do
    if "$candidate" -c 'import mesonpy, pip' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "skipped: no meson-python here; install python3-mesonpy and python3-pip"
    exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp -r "$package" "$scratch/package"
rm -rf "$scratch"/package/remo/__pycache__
"$python" -m pip wheel --quiet --no-build-isolation --no-deps --no-index -w "$scratch" "$scratch/package"
# The wheel has only Python files, so it is the same for every machine.
ls "$scratch"/remo-*-py3-none-any.whl
"$python" -m pip install --quiet --root-user-action=ignore --no-deps --no-index \
    --target "$scratch/installed" "$scratch"/remo-*.whl
cat >"$scratch/prog.py" <<'END'
import remo
assert remo.__file__.split("/")[-3] == "installed", remo.__file__
with remo.Node() as node:
    remo.Barrier(node, "all").wait()
    print("passed\n", end="")  # in one write, so that lines of different nodes do not mix
END
cd "$scratch"
export PYTHONPATH=$scratch/installed REMO_LIBRARY=$library
output=$("$remo" run -n 2 -- "$python" prog.py 2>&1) || true
echo "$output"
[ "$output" = $'passed\npassed' ]
