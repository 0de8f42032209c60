# Ends at the first command that fails, and never asks for input.
set -eu
refuse() {
    printf 'agentiso:%s %s\n' "$1" "$2" >&2
    exit 64
}
# Enters a directory that a client named and that may not exist.
enter() {
    cd "$1" 2>/dev/null || refuse no_directory "$1 does not exist or is not a directory that can be entered"
}
command -v git >/dev/null 2>&1 || refuse no_git 'git is not installed'
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_NAMESPACE
export LC_ALL=C.UTF-8 LANGUAGE='' GIT_TERMINAL_PROMPT=0 GCM_INTERACTIVE=never GIT_PAGER=cat GIT_EDITOR=:
export GIT_SSH_COMMAND="${GIT_SSH_COMMAND:-ssh -oBatchMode=yes}"
# All repositories in a guest are trusted, no matter who owns their files. git starts no background work.
export GIT_CONFIG_COUNT=3
export GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
export GIT_CONFIG_KEY_1=gc.auto GIT_CONFIG_VALUE_1=0
export GIT_CONFIG_KEY_2=maintenance.auto GIT_CONFIG_VALUE_2=false
