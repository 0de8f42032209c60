# $1 path
enter "$1"
export GIT_OPTIONAL_LOCKS=0
git status --porcelain=v2 --branch --untracked-files=normal -z
