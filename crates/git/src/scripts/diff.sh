# $1 path, $2 1 for what is staged, $3 1 for figures only, $4 file or nothing
enter "$1"
# Outside of a repository, git diff would compare any two files.
git rev-parse --is-inside-work-tree >/dev/null
staged=$2 stat=$3 file=$4
export GIT_OPTIONAL_LOCKS=0
set --
[ -z "$staged" ] || set -- "$@" --cached
[ -z "$stat" ] || set -- "$@" --stat
set -- "$@" --
[ -z "$file" ] || set -- "$@" "$file"
git --literal-pathspecs diff --no-color --no-ext-diff "$@"
