#!/bin/sh
# Installs the packages that lagoon needs, by name, with apt (Debian, Ubuntu) or brew (macOS); does nothing when all
# are there. Uses sudo only when it is not root.
#
#   tools/setup.sh [build|test] [--list]
#
#   build   what `make` and `make run` need (the default)
#   test    that, and what `make test` needs
#   --list  print the missing packages, one a line, and end
set -eu

what=build
list=no
for arg in "$@"; do
    case $arg in
    build | test) what=$arg ;;
    --list) list=yes ;;
    *) echo "usage: tools/setup.sh [build|test] [--list]" >&2; exit 2 ;;
    esac
done

# One package a line, with what it is for.
apt_build="
gcc             # C compiler
libc6-dev       # C library headers
meson           # build system
ninja-build     # runs the build
pkg-config      # finds the libraries below
libjansson-dev  # JSON
libpcre2-dev    # regular expressions of the tokenizer
libinih-dev     # lagoon.conf
libxxhash-dev   # checksums
libedit-dev     # line editing in chat
libmicrohttpd-dev # HTTP and TLS of the server
libcmocka-dev   # unit tests, which are configured with the rest
"
apt_test="
python3         # end-to-end tests
valgrind        # memory of a short answer and of a server
libtest-json-schema-acceptance-perl # the official suite of JSON Schema
"
# The other architecture's kernels are tested under emulation.
apt_cross="
gcc-aarch64-linux-gnu
libc6-dev-arm64-cross
qemu-user
"
brew_build="
meson
ninja
pkg-config
jansson
pcre2
inih
xxhash
libmicrohttpd
cmocka
"
brew_test="
python3
"

names() { # strips comments and blanks
    sed 's/#.*//' | tr -s ' \n' '\n\n' | sed '/^$/d'
}

privileged() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        echo "setup: root is needed to run: $*" >&2
        exit 1
    fi
}

missing_apt() {
    {
        echo "$apt_build"
        if [ "$what" = test ]; then
            echo "$apt_test"
            if [ "$(dpkg --print-architecture)" = amd64 ]; then echo "$apt_cross"; fi
        fi
    } | names | while read -r p; do
        case $(dpkg-query -W -f '${Status}' "$p" 2>/dev/null || true) in
        "install ok installed") ;;
        *) echo "$p" ;;
        esac
    done
}

missing_brew() {
    have=$(brew list --formula -1 --full-name 2>/dev/null; brew list --formula -1)
    {
        echo "$brew_build"
        if [ "$what" = test ]; then echo "$brew_test"; fi
    } | names | while read -r p; do
        echo "$have" | grep -qx -e "$p" -e "$p@.*" || echo "$p"
    done
}

apt="apt-get -qq -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3"

update_apt() { # a machine that has just started looks for updates itself and holds the lists meanwhile
    tries=0
    until privileged $apt update; do
        tries=$((tries + 1))
        [ $tries -lt 20 ] || return 1
        sleep 10
    done
}

install_apt() {
    # A fresh container has no package lists, an old one has stale ones.
    if ! ls /var/lib/apt/lists/*Packages* >/dev/null 2>&1; then
        update_apt
    fi
    # shellcheck disable=SC2086
    privileged env DEBIAN_FRONTEND=noninteractive $apt install --no-install-recommends "$@" || {
        update_apt
        privileged env DEBIAN_FRONTEND=noninteractive $apt install --no-install-recommends "$@"
    }
}

if command -v apt-get >/dev/null 2>&1 && command -v dpkg-query >/dev/null 2>&1; then
    missing=$(missing_apt)
    manager=apt
elif command -v brew >/dev/null 2>&1; then
    missing=$(missing_brew)
    manager=brew
else
    for tool in cc meson ninja pkg-config; do
        command -v $tool >/dev/null 2>&1 || {
            echo "setup: neither apt nor brew is here, and $tool is missing; lagoon needs:" >&2
            echo "  a C17 compiler, meson, ninja, pkg-config, jansson, pcre2, inih, xxhash, libedit; for tests cmocka, python3" >&2
            exit 1
        }
    done
    exit 0
fi

if [ "$list" = yes ]; then
    [ -z "$missing" ] || echo "$missing"
    exit 0
fi
[ -n "$missing" ] || exit 0
# shellcheck disable=SC2086
case $manager in
apt) echo "apt: installing" $missing && install_apt $missing ;;
brew) echo "brew: installing" $missing && brew install -q $missing ;;
esac
missing=$("missing_$manager")
[ -z "$missing" ] || {
    echo "setup: still missing after installation:" $missing >&2
    exit 1
}
