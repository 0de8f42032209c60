# $1 path: whether a clone may go there.
if [ -d "$1" ]; then
    [ -z "$(ls -A "$1")" ] || refuse not_empty "$1 is not empty"
    echo 'before empty'
elif [ -e "$1" ] || [ -L "$1" ]; then
    refuse not_empty "$1 exists and is not a directory"
else
    echo 'before absent'
fi
