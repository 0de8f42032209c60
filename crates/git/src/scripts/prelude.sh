# Fails at the first thing that fails, and never asks anybody anything.
set -eu
refuse() {
    printf 'agentiso:%s %s\n' "$1" "$2" >&2
    exit 64
}
# Where a caller's words are a path that may not be there.
enter() {
    cd "$1" 2>/dev/null || refuse no_directory "$1 is no directory that can be entered"
}
command -v git >/dev/null 2>&1 || refuse no_git 'there is no git here'
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_NAMESPACE
export LC_ALL=C.UTF-8 LANGUAGE='' GIT_TERMINAL_PROMPT=0 GCM_INTERACTIVE=never GIT_PAGER=cat GIT_EDITOR=:
export GIT_SSH_COMMAND="${GIT_SSH_COMMAND:-ssh -oBatchMode=yes}"
# Everything in a guest is its user's, whoever a file belongs to. Nothing goes on in the background.
export GIT_CONFIG_COUNT=3
export GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
export GIT_CONFIG_KEY_1=gc.auto GIT_CONFIG_VALUE_1=0
export GIT_CONFIG_KEY_2=maintenance.auto GIT_CONFIG_VALUE_2=false
