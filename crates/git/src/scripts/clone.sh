# $1 url, $2 path, $3 branch or nothing, $4 depth or nothing
export GIT_ALLOW_PROTOCOL=http:https:git:ssh
url=$1 path=$2 branch=$3 depth=$4
set --
[ -z "$branch" ] || set -- "$@" "--branch=$branch"
[ -z "$depth" ] || set -- "$@" "--depth=$depth"
git clone --quiet --no-recurse-submodules "$@" -- "$url" "$path"
cd "$path"
printf 'commit %s\n' "$(git rev-parse -q --verify HEAD || :)"
printf 'branch %s\n' "$(git symbolic-ref -q --short HEAD || :)"
