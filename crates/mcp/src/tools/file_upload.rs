//! `file_upload`: a tool of earlier versions, replaced by a direction of `file_transfer`.

use super::shared::WORKSPACE;
use super::transfers::{self, Direction, GUEST_PATH, HOST_PATH};
use crate::args::Slot;
use crate::registry::{Hints, Tool};

pub(crate) const TOOL: Tool = Tool {
    name: "file_upload",
    title: "Copy a file into a workspace",
    description: "Copy a file or directory of the host's transfer directory into a workspace.",
    slots: &[Slot::Target(&WORKSPACE), Slot::Required(&HOST_PATH), Slot::Required(&GUEST_PATH)],
    output: transfers::output,
    hints: Hints { read_only: false, destructive: false, idempotent: false },
    prepare: |args, call| transfers::prepare(args, call, Direction::Upload),
};
