#!/bin/sh
# Fails when a file includes a layer that stands above its own (conventions: who may include whom), or when one kind of
# backend includes another.
#
#   tools/check-layers.sh [SOURCE_ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"

find src -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.m' | sort | xargs awk '
BEGIN {
    may["base"]    = " "
    may["gguf"]    = " base "
    may["text"]    = " base gguf "
    may["grammar"] = " base text "
    may["backend"] = " base gguf "
    may["model"]   = " base gguf backend "
    may["engine"]  = " base gguf text grammar backend model "
    may["server"]  = " base text grammar engine "
    may["app"]     = " base gguf text grammar backend model engine server "
}
FNR == 1 {
    split(FILENAME, part, "/")
    layer = part[2]
    kind = layer == "backend" && part[4] != "" ? part[3] : ""
    n_files++
    if (!(layer in may)) fault("src/" layer " is no layer")
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, quoted, "\"")
    n = split(quoted[2], to, "/")
    if (n < 2) next # generated headers and those beside the file
    if (to[1] != layer && index(may[layer], " " to[1] " ") == 0)
        fault(layer " may not include " to[1] " (" quoted[2] ")")
    if (to[1] == "backend" && n > 2 && kind != "" && to[2] != kind)
        fault("backend/" kind " may not include backend/" to[2])
    if (to[1] == "backend" && n > 2 && layer != "backend" && layer != "app")
        fault(layer " may include only the interface of backend, not " quoted[2])
}
function fault(text) {
    printf "%s:%d: %s\n", FILENAME, FNR, text
    faults++
}
END {
    if (n_files == 0) { print "no sources found"; exit 1 }
    printf "%d files, %d faults\n", n_files, faults
    exit faults > 0
}'
