//! Git in workspaces: repositories over the network, merges between workspaces, swarms.

mod merge;
mod own_protocol;
mod remote;
mod silence;
mod swarm;
