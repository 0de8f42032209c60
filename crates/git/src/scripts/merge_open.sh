# $1 path of the target, $2 bench, $3 1 if a branch is needed, $4 most commits that are listed
# Makes the bench: a clone that shares the target's objects, on which sources are tried out. The target itself only moves
# forward, after all commits of a source were applied on the bench.
enter "$1"
bench=$2
git rev-parse --is-inside-work-tree >/dev/null
cd "$(git rev-parse --show-toplevel)"
head=$(git rev-parse -q --verify 'HEAD^{commit}') || refuse no_commit 'the target has no commit yet'
branch=$(git symbolic-ref -q --short HEAD || :)
[ -z "$3" ] || [ -n "$branch" ] || refuse no_branch 'the target has no branch checked out'
for state in MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD rebase-merge rebase-apply; do
    [ ! -e "$(git rev-parse --git-path "$state")" ] ||
        refuse unfinished "a merge, rebase or similar is in progress in the target ($state); finish or abort it first"
done
changed=$(GIT_OPTIONAL_LOCKS=0 git -c core.quotePath=false status --porcelain --untracked-files=no | head -n 3 | cut -c 4-)
[ -z "$changed" ] ||
    refuse uncommitted "the target has uncommitted changes: $(printf '%s' "$changed" | tr '\n' ' ')"
mkdir -p -m 700 "$bench"
git clone --quiet --shared --no-checkout --no-tags . "$bench/repo" 2>&1 | sed '/^warning: /d' >&2
git -C "$bench/repo" -c advice.detachedHead=false checkout --quiet --detach "$head"
git rev-list --topo-order --max-count="$4" HEAD >"$bench/known"
printf 'head %s\nbranch %s\nknown %s\n' "$head" "$branch" "$(wc -c <"$bench/known")"
