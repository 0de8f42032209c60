# Commits need a name and an address. A guest without a configuration gets default ones.
identity() {
    name=$(git config --get user.name || :)
    email=$(git config --get user.email || :)
    export GIT_AUTHOR_NAME="${GIT_AUTHOR_NAME:-${name:-agentiso}}"
    export GIT_AUTHOR_EMAIL="${GIT_AUTHOR_EMAIL:-${email:-agentiso@localhost}}"
    export GIT_COMMITTER_NAME="${GIT_COMMITTER_NAME:-${name:-agentiso}}"
    export GIT_COMMITTER_EMAIL="${GIT_COMMITTER_EMAIL:-${email:-agentiso@localhost}}"
}
