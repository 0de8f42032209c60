#!/bin/sh
# Installs the system packages that agentiso needs: finds out what is missing, makes a plan of shell commands,
# and runs the plan as root or through sudo. Without either it prints the plan and fails. With nothing
# missing it does nothing, in milliseconds.
#
#   packages.sh build|up|test|fuzz|bench
set -eu

PURPOSE=${1-up}

# The oldest QEMU with migration to a plain file, which templates need.
QEMU_OLDEST=8.2

# Debian's administrator tools are not in the PATH of ordinary users.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

has() { command -v "$1" >/dev/null 2>&1; }

qemu_version() {
    has qemu-system-x86_64 || return 0
    qemu-system-x86_64 --version 2>/dev/null | sed -n '1s/.*version \([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p'
}

# at_least HAVE WANT, for versions of the form MAJOR.MINOR.
at_least() {
    [ -n "$1" ] || return 1
    [ "${1%%.*}" -gt "${2%%.*}" ] || { [ "${1%%.*}" -eq "${2%%.*}" ] && [ "${1#*.}" -ge "${2#*.}" ]; }
}

# --- what is missing ------------------------------------------------------------------------------------

missing=
need() { # COMMAND PACKAGE...
    command=$1
    shift
    has "$command" || missing="$missing $*"
}

need cc gcc libc6-dev
if [ "$PURPOSE" != build ] && [ "$PURPOSE" != fuzz ]; then
    need mmdebstrap mmdebstrap
    need mke2fs e2fsprogs
    # mmdebstrap without root maps a range of user ids.
    need newuidmap uidmap
fi
case $PURPOSE in
test | fuzz) need c++ g++ ;;
esac
case $PURPOSE in
test)
    need python3 python3
    # The internet that tests reach is a network namespace with servers of its own.
    need ip iproute2
    need git git
    need cpio cpio
    need openssl openssl
    python3 -c 'import venv, ensurepip' 2>/dev/null || missing="$missing python3-venv"
    ;;
bench)
    need crun crun
    need bwrap bubblewrap
    need busybox busybox-static
    need passt passt
    ;;
esac

qemu_missing=no
if [ "$PURPOSE" != build ] && [ "$PURPOSE" != fuzz ]; then
    if ! at_least "$(qemu_version)" "$QEMU_OLDEST" || ! has qemu-img; then
        qemu_missing=yes
    fi
fi

if [ -z "$missing" ] && [ "$qemu_missing" = no ]; then
    exit 0
fi

no_qemu() {
    echo "agentiso needs QEMU $QEMU_OLDEST or newer (qemu-system-x86_64 and qemu-img), and $1." >&2
    exit 1
}

if ! has apt-get || ! has dpkg; then
    [ "$qemu_missing" = no ] || no_qemu "this system has no apt to install it with: install it by other means"
    echo "x: this system has no apt; please install packages that provide:$missing" >&2
    exit 1
fi

# --- the plan -------------------------------------------------------------------------------------------

# Fields of os-release; read in a subshell, because the file sets many variables.
distribution=$(. /etc/os-release && echo "${ID-}")
release=$(. /etc/os-release && echo "${VERSION_ID-}")
codename=$(. /etc/os-release && echo "${VERSION_CODENAME-}")

APT="apt-get -y -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3"
BACKPORTS_FILE=/etc/apt/sources.list.d/agentiso-backports

sources() { # every active line of apt's sources
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
        grep -v '^[[:space:]]*#' || true
}

# Prints the source of the main archive again, for the backports suite: the host's own mirror and key are
# right there and nowhere else.
deb822_backports() {
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -r "$file" ] || continue
        awk -v suite="$codename" '
            BEGIN { RS = ""; FS = "\n" }
            {
                matches = 0; stanza = ""
                for (i = 1; i <= NF; i++) {
                    if ($i ~ /^#/) continue
                    if ($i ~ /^[Ss]uites:/) {
                        n = split(substr($i, index($i, ":") + 1), words, /[ \t]+/)
                        for (j = 1; j <= n; j++) if (words[j] == suite) matches = 1
                        stanza = stanza "Suites: " suite "-backports\n"
                    } else if ($i ~ /^[Cc]omponents:/) stanza = stanza "Components: main\n"
                    else if ($i ~ /^[Tt]ypes:/) stanza = stanza "Types: deb\n"
                    else if ($i ~ /^[Ee]nabled:[ \t]*no/) { matches = 0; break }
                    else stanza = stanza $i "\n"
                }
                if (matches) { printf "%s", stanza; exit }
            }' "$file"
    done | awk 'BEGIN { RS = "" } NR == 1 { print }'
}

one_line_backports() {
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
        sed -n "s/^[[:space:]]*deb[[:space:]]\{1,\}\(\[[^]]*\][[:space:]]\{1,\}\)\{0,1\}\([^[:space:]]\{1,\}\)[[:space:]]\{1,\}$codename[[:space:]]\{1,\}main.*/deb \1\2 $codename-backports main/p" |
        head -n 1
}

plan=
step() { plan="$plan$1
"; }

write_file() { # PATH CONTENT
    step "cat > $1 <<'END'
$2
END"
}

suite_option=
if [ "$qemu_missing" = yes ] && [ "$distribution" = debian ] && [ "$release" = 12 ]; then
    suite_option=" -t $codename-backports"
    if ! sources | grep -q "$codename-backports"; then
        stanza=$(deb822_backports)
        if [ -n "$stanza" ]; then
            write_file "$BACKPORTS_FILE.sources" "$stanza"
        else
            line=$(one_line_backports)
            [ -n "$line" ] || no_qemu "no apt source of Debian's main archive was found to take it from"
            write_file "$BACKPORTS_FILE.list" "$line"
        fi
    fi
fi

# An earlier run may have been interrupted in the middle of an installation.
[ -z "$(dpkg --audit 2>/dev/null)" ] || step "dpkg --configure -a"
step "$APT update </dev/null"
[ -z "$missing" ] || step "$APT install --no-install-recommends$missing </dev/null"
[ "$qemu_missing" = no ] ||
    step "$APT install --no-install-recommends$suite_option qemu-system-x86 qemu-utils </dev/null"

# --- carrying it out ------------------------------------------------------------------------------------

wanted=$missing
[ "$qemu_missing" = no ] || wanted="$wanted qemu-system-x86 qemu-utils"
echo "System packages to install:$wanted" >&2

status=0
if [ "$(id -u)" = 0 ]; then
    sh -c "set -e; export DEBIAN_FRONTEND=noninteractive; $plan" </dev/null >&2 || status=$?
elif has sudo && sudo -n true 2>/dev/null; then
    sudo -n sh -c "set -e; export DEBIAN_FRONTEND=noninteractive; $plan" </dev/null >&2 || status=$?
else
    {
        echo "x: installing packages needs root or passwordless sudo. Please run:"
        echo
        printf 'sudo sh -e <<'\''PLAN'\''\n%sPLAN\n' "$plan"
        echo
        echo "and then run ./x again."
    } >&2
    exit 1
fi

if [ "$qemu_missing" = yes ]; then
    version=$(qemu_version)
    at_least "$version" "$QEMU_OLDEST" || no_qemu "this system's packages offer ${version:-none}"
fi
if [ "$status" -ne 0 ]; then
    echo "x: apt failed (exit code $status); see its messages above. Run ./x again when this is fixed." >&2
    exit 1
fi
