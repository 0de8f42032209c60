# $1 is the prompt; the notes for it are on standard input.
# Both AI agents would take a prompt that begins with a dash for an option.
case "$1" in -*) set -- " $1" ;; esac
PATH="$PATH:/usr/local/bin:$HOME/.local/bin:$HOME/.opencode/bin"
if command -v claude >/dev/null 2>&1; then
  exec claude -p "$1" <"${VAULT_CONTEXT:-/dev/null}"
elif command -v opencode >/dev/null 2>&1; then
  exec opencode run "$1" <"${VAULT_CONTEXT:-/dev/null}"
fi
echo "agentiso: no AI agent in this image: neither claude nor opencode is in PATH" >&2
exit 127
