#!/bin/sh
# Index the example library and ask it five questions. Needs `lmk` on the PATH; `make demo` sees to that.
set -eu
cd "$(dirname "$0")/.."
DB=.demo/library
LIBRARY=examples/library

ask() {
    printf '\n=== %s\n' "$1"
    lmk search "$1" --db "$DB" -k 2
}

printf '=== lmk index %s --db %s\n' "$LIBRARY" "$DB"
lmk index "$LIBRARY" --db "$DB" --prune

ask "How much of a training course must I pay back if I resign eighteen months after it ended?"
# The answer lies some 8,000 tokens into the transcript, far behind what the model reads in one piece.
ask "Why was the marquee given up, and what does the ice house cost?"
ask "Welche Akkus dürfen im Gebäude nicht geladen werden?"
ask "What caused the nitrate peak at LC-12?"
ask "To which torque are the head screws of a DM 340-110 with PVDF head tightened?"
