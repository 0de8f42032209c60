# $1 path. A git that was killed leaves its locks: of the index, of HEAD, of the configuration, of branches. They are
# removed when no git that could own them runs there any more. No name of a branch ends in .lock.
enter "$1"
own=$(git rev-parse --absolute-git-dir)
# A bare repository has no working tree.
tree=$(git rev-parse --show-toplevel 2>/dev/null) || tree=$own
here=$(cd "$tree" && pwd -P)
common=$(cd "$(git rev-parse --git-common-dir)" && pwd -P)
locks() {
    find "$own/index.lock" "$own/HEAD.lock" "$common/config.lock" "$common/refs" -type f -name '*.lock' "$@" 2>/dev/null || :
}
[ -n "$(locks)" ] || exit 0
sleep 1
for process in /proc/[0-9]*; do
    case $(readlink "$process/exe" 2>/dev/null) in
    */git | */git-*) ;;
    *) continue ;;
    esac
    case $(readlink "$process/cwd" 2>/dev/null)/ in
    "$here"/*) exit 0 ;;
    esac
done
locks -exec rm -f {} \;
