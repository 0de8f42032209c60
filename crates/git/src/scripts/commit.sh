# $1 path, $2 message, $3 1 to add everything, $4 author or nothing, $5 the author's address
enter "$1"
git rev-parse --is-inside-work-tree >/dev/null
if [ -n "$4" ]; then
    export GIT_AUTHOR_NAME="$4" GIT_AUTHOR_EMAIL="$5" GIT_COMMITTER_NAME="$4" GIT_COMMITTER_EMAIL="$5"
else
    identity
fi
[ -z "$3" ] || git add --all
if git diff --cached --quiet && ! git rev-parse -q --verify MERGE_HEAD >/dev/null; then
    echo nothing to commit
    exit 0
fi
summary=$(git commit --message="$2")
printf 'commit %s\n' "$(git rev-parse HEAD)"
printf 'branch %s\n' "$(git symbolic-ref -q --short HEAD || :)"
printf '%s\n' "$summary"
