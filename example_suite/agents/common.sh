# What the stand-in agents share; sourced, not run.

# Prints the version when asked for it, else the first line of the prompt.
begin() {
    if [ "${2:-}" = --version ]; then
        echo "$1 1.0"
        exit 0
    fi
    printf '%s was asked: ' "$1"
    sed -n 1p "$ROLLOUT_PROMPT_FILE"
}

unknown_task() {
    echo "$1: no idea how to solve '$ROLLOUT_TASK'" >&2
    exit 64
}

# Says what is missing and ends with the exit code that rollout.toml declares as infrastructure: without its tools an
# agent cannot show what it is able to do.
lacks() {
    echo "$1 is not here" >&2
    exit 75
}

# Sets AWK. On some systems awk is only a link into a folder that a sandbox may not show.
need_awk() {
    for AWK in awk gawk mawk; do
        if command -v "$AWK" > /dev/null 2>&1; then
            return
        fi
    done
    lacks "any awk (awk, gawk, mawk)"
}

# edit FILE SED_SCRIPT: changes a file in place, without the -i that POSIX sed lacks.
edit() {
    draft=$(mktemp)
    sed "$2" "$1" > "$draft"
    cat "$draft" > "$1"
    rm -f "$draft"
}

# make_database FILE SQL_FILE: runs the SQL with the program sqlite3, or with Python's module of that name.
make_database() {
    if command -v sqlite3 > /dev/null 2>&1; then
        sqlite3 -batch -bail "$1" < "$2"
    elif python3 -c 'import sqlite3' > /dev/null 2>&1; then
        python3 -c 'import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.stdin.read())' "$1" < "$2"
    else
        lacks "SQLite (the program sqlite3, or python3 with its module sqlite3)"
    fi
}
