//! One file per tool.

pub(crate) mod exec;
pub(crate) mod file_edit;
pub(crate) mod file_list;
pub(crate) mod file_read;
pub(crate) mod file_write;
pub(crate) mod network_policy;
pub(crate) mod port_forward;
pub(crate) mod snapshot;
pub(crate) mod snapshot_create;
pub(crate) mod snapshot_delete;
pub(crate) mod snapshot_diff;
pub(crate) mod snapshot_list;
pub(crate) mod snapshot_restore;
pub(crate) mod vault;
pub(crate) mod workspace_adopt;
pub(crate) mod workspace_create;
pub(crate) mod workspace_destroy;
pub(crate) mod workspace_fork;
pub(crate) mod workspace_info;
pub(crate) mod workspace_ip;
pub(crate) mod workspace_list;
pub(crate) mod workspace_logs;
pub(crate) mod workspace_start;
pub(crate) mod workspace_stop;

mod shared;
mod snapshots;
mod view;
