# $1 path of the source, $2 bench with the list of commits that the target knows, $3 most bytes
enter "$1"
bench=$2
git rev-parse --git-dir >/dev/null
head=$(git rev-parse -q --verify 'HEAD^{commit}') || refuse no_commit 'it has no commit yet'
uncommitted=$(GIT_OPTIONAL_LOCKS=0 git status --porcelain | wc -l)
printf 'head %s\nuncommitted %s\n' "$head" "$uncommitted"
{
    echo HEAD
    git cat-file --batch-check='%(objecttype) ^%(objectname)' <"$bench/known" | sed -n 's/^commit //p'
} >"$bench/wanted"
count=$(git rev-list --count --stdin <"$bench/wanted")
printf 'count %s\n' "$count"
[ "$count" -gt 0 ] || exit 0
git bundle create --quiet "$bench/bundle" --stdin <"$bench/wanted"
size=$(wc -c <"$bench/bundle")
[ "$size" -le "$3" ] || refuse too_large "its new commits take $size bytes; at most $3 can be transferred"
printf 'size %s\n' "$size"
