//! `file_transfer`: copies files and directories between the host's transfer directory and a workspace.

use super::shared::WORKSPACE;
use super::transfers::{self, Direction, GUEST_PATH, HOST_PATH};
use crate::args::{Choice, Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

const DIRECTION: Choice<Direction> = Choice::new(
    "direction",
    "upload: host to workspace.",
    &[("upload", Direction::Upload), ("download", Direction::Download)],
);

pub(crate) const TOOL: Tool = Tool {
    name: "file_transfer",
    title: "Copy files between host and workspace",
    description: "Copy a file or directory of any size between the host's transfer directory and a workspace. \
                  An existing file is replaced; a target directory must be absent or empty. For text you \
                  write yourself use file_write.",
    slots: &[
        Slot::Required(&DIRECTION),
        Slot::Target(&WORKSPACE),
        Slot::Required(&HOST_PATH),
        Slot::Required(&GUEST_PATH),
    ],
    output: transfers::output,
    hints: Hints { read_only: false, destructive: true, idempotent: false },
    prepare,
};

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let direction = args.required(&DIRECTION);
    let workspace = args.target(&WORKSPACE, &call.implied);
    let host_path = args.required(&HOST_PATH);
    let guest_path = args.required(&GUEST_PATH);
    let (direction, workspace, host_path, guest_path) =
        args.finish((|| Some((direction?, workspace?, host_path?, guest_path?)))())?;
    Ok(Box::pin(async move { transfers::run(&call, &workspace, direction, host_path, &guest_path).await }))
}
