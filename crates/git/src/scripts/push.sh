# $1 path, $2 remote, $3 branch or nothing, $4 1 to force, $5 1 to set the upstream
# A remote may be on the guest's own disk.
export GIT_ALLOW_PROTOCOL=file:http:https:git:ssh
enter "$1"
git rev-parse --git-dir >/dev/null
remote=$2 branch=$3 force=$4 upstream=$5
[ -n "$branch" ] || branch=$(git symbolic-ref -q --short HEAD) || refuse no_branch 'no branch is checked out'
printf 'branch %s\n' "$branch"
set --
[ -z "$force" ] || set -- "$@" --force
[ -z "$upstream" ] || set -- "$@" --set-upstream
git push "$@" -- "$remote" "$branch" 2>&1
