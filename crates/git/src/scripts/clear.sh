# Empties a directory. $1 path, $2 1 to remove the directory as well. Tries several times, because a process that was just
# killed may still write.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    if [ -d "$1" ] && [ ! -L "$1" ]; then
        find "$1" -mindepth 1 -maxdepth 1 -exec rm -rf {} + 2>/dev/null || :
        [ -z "$2" ] || rmdir "$1" 2>/dev/null || :
    fi
    [ ! -d "$1" ] || { [ -z "$2" ] && [ -z "$(ls -A "$1")" ]; } || { sleep 1; continue; }
    exit 0
done
refuse not_empty "$1 cannot be emptied"
