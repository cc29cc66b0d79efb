#!/usr/bin/env bash
# Build a program of README.md from its text alone, and run it on four nodes.
#   test_readme.sh SOURCE-ROOT LIBRARY REMO CC LANGUAGE [CXX or PYTHON]
set -u

top=$1 library=$(realpath "$2") remo=$(realpath "$3") cc=$4 language=$5 tool=${6-}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
lib=${library%/*}

# block LANGUAGE: print the first block of README.md with this mark.
block() {
    awk -v mark="\`\`\`$1" '
        $0 == mark { inside = 1; next } inside && /^```$/ { exit } inside' "$top/README.md"
}

block "$language" >"$scratch/hello.$language"
[ -s "$scratch/hello.$language" ] || {
    echo "README.md has no program marked $language"
    exit 1
}
cd "$scratch" || exit 1
build=(-Wall -Wextra -Werror -I "$top/include" -L "$lib" "-Wl,-rpath,$lib" -o hello)
case $language in
c) "$cc" -std=c11 hello.c "${build[@]}" -lremo && program=(./hello) ;;
cpp) "$tool" -std=c++17 hello.cpp "${build[@]}" -lremo -pthread && program=(./hello) ;;
python) program=("$tool" hello.python) ;;
esac || exit 1
export PYTHONPATH=$top/clients/python REMO_LIBRARY=$library PYTHONDONTWRITEBYTECODE=1
for fabric in shm ofi; do
    found=$("$remo" run -n 4 --fabric "$fabric" -- "${program[@]}" 2>&1)
    echo "$fabric: $found"
    [ "$found" = 'the ranks of 4 nodes add up to 6' ] || exit 1
done
