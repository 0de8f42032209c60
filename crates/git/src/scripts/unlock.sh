# $1 path. A git that was killed leaves its lock. It is removed when no git that could own it runs there any more.
enter "$1"
cd "$(git rev-parse --show-toplevel)"
lock=$(git rev-parse --git-path index.lock)
[ -e "$lock" ] || exit 0
sleep 1
here=$(pwd -P)
for process in /proc/[0-9]*; do
    case $(readlink "$process/exe" 2>/dev/null) in
    */git | */git-*) ;;
    *) continue ;;
    esac
    case $(readlink "$process/cwd" 2>/dev/null)/ in
    "$here"/*) exit 0 ;;
    esac
done
rm -f "$lock"
