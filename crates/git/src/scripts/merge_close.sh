# Removes the bench, $1. Tries several times, because a process that was just killed may still write.
for _ in 1 2 3 4 5; do
    rm -rf "$1" 2>/dev/null || :
    [ -e "$1" ] || exit 0
    sleep 1
done
refuse not_empty "$1 cannot be removed"
