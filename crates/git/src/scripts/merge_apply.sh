# $1 path of the target, $2 bench, $3 commit to begin from, $4 strategy, $5 message of a merge commit, $6 most commits
# Changes only the bench. Commits that a mailbox can hold are applied with am. If there are merges, or messages that am would
# take for patches, the commits along the first parents are picked one by one, which keeps the resolutions of conflicts.
cd "$1"
identity
cd "$2"
begin=$3 strategy=$4 message=$5 most=$6
cat part.* >bundle
rm -f part.*
# Settings of the user and the system must not change the patches.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_CONFIG_COUNT=4
export GIT_CONFIG_KEY_3=core.hooksPath GIT_CONFIG_VALUE_3=/dev/null
cd repo
git am --quit >/dev/null 2>&1 || :
git checkout --quiet --force --detach "$begin"
git clean --quiet -ffdx
git fetch --quiet --no-tags ../bundle +HEAD:refs/agentiso/source
source=$(git rev-parse refs/agentiso/source)

if base=$(git merge-base "$begin" "$source"); then
    all="$begin..$source"
    wanted="--cherry-pick --right-only $begin...$source"
else
    # Histories that share nothing: everything after the first commit.
    base=$(git rev-list --first-parent --max-parents=0 "$source" | tail -n 1)
    all="$base..$source"
    wanted=$all
fi
# $wanted is split into words on purpose: options and commits that were made above. A commit that the target has under another
# hash may be anywhere in its history, not only along its first parents.
# shellcheck disable=SC2086
git rev-list $wanted >../wanted
git rev-list --reverse --topo-order --first-parent "$all" | grep -F -x -f ../wanted >../list || :
count=$(wc -l <../list)
[ "$count" -le "$most" ] || refuse too_many "it has $count new commits; at most $most can be merged at once"

conflict() {
    files=$(git -c core.quotePath=false diff --name-only --diff-filter=U | head -n 10 | tr '\n' ' ')
    what=$(git log -1 --format='%h (%s)' "$1" 2>/dev/null || echo 'a commit')
    [ -n "$files" ] || files=$(grep -m 1 '^error: ' ../said || :)
    refuse conflict "commit $what does not fit: $files"
}

mail() {
    # shellcheck disable=SC2086
    git format-patch --quiet --stdout --keep-subject --binary --full-index --no-signature $wanted >../mailbox
    [ -s ../mailbox ] || return 0
    git am --quiet --3way --keep --keep-cr ../mailbox >../said 2>&1 && return 0
    cat ../said >&2
    state=$(git rev-parse --git-path rebase-apply)
    conflict "$(sed -n '1s/^From \([0-9a-f]*\) .*/\1/p' "$state/$(printf %04d "$(cat "$state/next")")" || :)"
}

pick() {
    while read -r commit <&3; do
        set -- --allow-empty --keep-redundant-commits
        ! git rev-parse -q --verify "$commit^2" >/dev/null || set -- "$@" --mainline 1
        before=$(git rev-parse HEAD)
        git cherry-pick "$@" "$commit" >../said 2>&1 || {
            cat ../said >&2
            conflict "$commit"
        }
        # A commit that changes nothing is left out: the target has its change already, or it was empty from the beginning.
        ! git diff --quiet "$before" HEAD || git reset --quiet --hard "$before"
    done 3<../list
}

is_mailable() {
    # shellcheck disable=SC2086
    [ "$(git rev-list --count --merges $all)" -eq 0 ] &&
        ! git log --format=%B $all | grep -Eq '^(---|diff -|Index: |>*From )'
}

case $strategy in
cherry-pick) pick ;;
*) if is_mailable; then mail; else pick; fi ;;
esac
tip=$(git rev-parse HEAD)
applied=$(git rev-list --count "$begin..$tip")
if [ "$strategy" = branch-per-source ] && [ "$applied" -gt 0 ]; then
    git checkout --quiet --detach "$begin"
    git merge --quiet --no-ff --message="$message" "$tip"
    tip=$(git rev-parse HEAD)
fi
printf 'tip %s\napplied %s\ncount %s\n' "$tip" "$applied" "$count"
