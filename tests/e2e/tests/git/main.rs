//! Git in workspaces: repositories over the network, merges between machines, swarms.

mod merge;
mod remote;
mod swarm;
