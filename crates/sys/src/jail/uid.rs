//! The user of a VM's QEMU, if the daemon is root.
//!
//! No file on the host's disk belongs to such a user for longer than its VM runs, so nothing has to be recorded: the
//! number is derived from the workspace's id, and it is free again when the process is gone.

use std::ops::Range;

use agentiso_core::ids::WorkspaceId;

/// Above all ranges that distributions and container managers use, and below systemd's range for files of foreign
/// systems, which begins at 0x7ffe_0000.
const FIRST: u32 = 0x7000_0000;
const COUNT: u32 = 0x0ffe_0000;

/// All users that VMs may have.
pub(super) const USERS: Range<u32> = FIRST..FIRST + COUNT;

/// The user and group of a VM. Ids are random, so two VMs of one host share a user only with a chance of one in
/// hundreds of millions.
pub fn uid_of(id: WorkspaceId) -> u32 {
    let (_, low) = id.as_uuid().as_u64_pair();
    let folded = low ^ (low >> 29);
    FIRST + (folded % u64::from(COUNT)) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn vm_users_are_distinct_and_in_range() {
        let users: HashSet<u32> = (0..1000).map(|_| uid_of(WorkspaceId::random())).collect();
        assert!(users.len() >= 999, "{}", users.len());
        assert!(users.iter().all(|uid| (FIRST..FIRST + COUNT).contains(uid)));
        const { assert!(USERS.end <= 0x7ffe_0000, "systemd's own") };
        let id = WorkspaceId::random();
        assert_eq!(uid_of(id), uid_of(id));
    }
}
