//! Git in workspaces: repositories over the network, merges between machines, swarms.

mod merge;
mod own_protocol;
mod remote;
mod silence;
mod swarm;
