# $1 path of the target, $2 bench, $3 commit that the target is at, $4 commit that it goes to
# Checks first that the target would lose nothing. If the target cannot be moved completely, for example because the disk is
# full, the change is undone.
enter "$1"
bench=$2 begin=$3 tip=$4
cd "$(git rev-parse --show-toplevel)"
[ "$(git rev-parse HEAD)" = "$begin" ] || refuse moved 'the target was changed by another program meanwhile'
export GIT_CONFIG_COUNT=7
export GIT_CONFIG_KEY_3=core.hooksPath GIT_CONFIG_VALUE_3=/dev/null
export GIT_CONFIG_KEY_4=merge.autoStash GIT_CONFIG_VALUE_4=false
export GIT_CONFIG_KEY_5=merge.verifySignatures GIT_CONFIG_VALUE_5=false
export GIT_CONFIG_KEY_6=submodule.recurse GIT_CONFIG_VALUE_6=false
git fetch --quiet --no-tags --no-write-fetch-head "$bench/repo" HEAD
git update-index -q --refresh >/dev/null 2>&1 || refuse uncommitted 'the target has uncommitted changes now'
# Files that are not committed are never overwritten, ignored ones included.
git diff --name-only --no-renames --diff-filter=A -z "$begin" "$tip" >"$bench/added"
# shellcheck disable=SC2016
in_the_way=$(xargs -0 sh -c 'for file; do [ ! -e "$file" ] && [ ! -L "$file" ] || printf "%s " "$file"; done' sh <"$bench/added")
[ -z "$in_the_way" ] || refuse in_the_way "files that are not committed are in the way: $in_the_way"
git read-tree -n -m -u "$begin" "$tip" 2>"$bench/said" ||
    refuse in_the_way "files of the target are in the way: $(tr '\n' ' ' <"$bench/said")"
git merge --quiet --ff-only --no-overwrite-ignore "$tip" >"$bench/said" 2>&1 && exit 0
cat "$bench/said" >&2
xargs -0 rm -f -- <"$bench/added"
git reset --quiet --hard "$begin"
refuse not_moved "the target could not be moved forward: $(tail -n 1 "$bench/said")"
