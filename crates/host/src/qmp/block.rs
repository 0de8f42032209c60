//! Changing what a running machine's disk is made of: a fresh overlay on top, a layer merged into the one below.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::client::{QmpClient, QmpError};
use crate::qemu::argv::{file_node, qcow2_node};

/// A file that QEMU has open as part of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskNode {
    pub node: String,
    pub file: PathBuf,
}

impl QmpClient {
    /// What the guest writes to.
    pub async fn disk_head(&self) -> Result<DiskNode, QmpError> {
        let drives = self.execute("query-block", None).await?;
        let inserted = drives.get(0).and_then(|drive| drive.get("inserted"));
        inserted.and_then(disk_node).ok_or_else(|| unexpected("query-block"))
    }

    /// Every qcow2 file that is open, the head included.
    pub async fn disk_nodes(&self) -> Result<Vec<DiskNode>, QmpError> {
        let nodes = self.execute("query-named-block-nodes", Some(json!({"flat": true}))).await?;
        let nodes = nodes.as_array().ok_or_else(|| unexpected("query-named-block-nodes"))?;
        Ok(nodes.iter().filter(|node| node["drv"] == "qcow2").filter_map(disk_node).collect())
    }

    /// Opens an overlay that is not yet part of the disk.
    pub async fn open_overlay(&self, node: &str, file: &Path) -> Result<(), QmpError> {
        let mut options = qcow2_node(node, file);
        // What lies below it is what the guest has open already; it is connected by the pivot.
        options["backing"] = Value::Null;
        self.execute("blockdev-add", Some(options)).await.map(drop)
    }

    pub async fn close_overlay(&self, node: &str) -> Result<(), QmpError> {
        self.execute("blockdev-del", Some(json!({"node-name": node}))).await.map(drop)
    }

    /// From now on the guest writes to the overlay; what it has written so far stays as it is.
    pub async fn pivot(&self, head: &str, overlay: &str) -> Result<(), QmpError> {
        self.execute("blockdev-snapshot", Some(json!({"node": head, "overlay": overlay}))).await.map(drop)
    }

    /// Has QEMU tell when the file below the head grows beyond this length.
    pub async fn watch_growth(&self, head: &str, length: u64) -> Result<(), QmpError> {
        let arguments = json!({"node-name": file_node(head), "write-threshold": length});
        self.execute("block-set-write-threshold", Some(arguments)).await.map(drop)
    }

    /// Merges a frozen layer into the one below it. `below` is the name that the layer above refers to from then on.
    pub async fn commit_layer(
        &self,
        head: &str,
        layer: &str,
        into: &str,
        below: &str,
        deadline: Duration,
    ) -> Result<(), QmpError> {
        const JOB: &str = "merge";
        let mut events = self.events();
        let arguments = json!({
            "job-id": JOB, "device": head, "top-node": layer, "base-node": into, "backing-file": below,
        });
        self.execute("block-commit", Some(arguments)).await?;
        let ended = async {
            loop {
                match events.recv().await {
                    Ok(event) if event.data["device"] == JOB => match event.name.as_str() {
                        "BLOCK_JOB_COMPLETED" => {
                            let problem = event.data.get("error").and_then(Value::as_str);
                            return problem.map_or(Ok(()), |reason| Err(merge_failed(reason)));
                        }
                        "BLOCK_JOB_CANCELLED" => return Err(merge_failed("it was cancelled")),
                        _ => {}
                    },
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => {
                        let jobs = self.execute("query-block-jobs", None).await?;
                        if jobs.as_array().is_some_and(Vec::is_empty) {
                            return Err(merge_failed("how it ended was missed"));
                        }
                    }
                    Err(RecvError::Closed) => return Err(QmpError::Closed),
                }
            }
        };
        match tokio::time::timeout(deadline, ended).await {
            Ok(Ok(())) => self.forget_node(layer).await,
            Ok(Err(error)) => Err(error),
            Err(_elapsed) => {
                // What has been merged so far does no harm: the chain reads the same at every moment.
                self.execute("block-job-cancel", Some(json!({"device": JOB, "force": true}))).await?;
                Err(merge_failed("it took too long"))
            }
        }
    }

    /// Closes a layer that is not part of the disk any more. One that we opened ourselves stays open until then, and
    /// QEMU (10.0) crashes in a later merge if its file is gone by that time.
    async fn forget_node(&self, node: &str) -> Result<(), QmpError> {
        let is_open = |nodes: Vec<DiskNode>| nodes.iter().any(|open| open.node == node);
        if is_open(self.disk_nodes().await?) {
            self.close_overlay(node).await?;
        }
        match is_open(self.disk_nodes().await?) {
            true => Err(merge_failed("QEMU keeps the merged layer open")),
            false => Ok(()),
        }
    }
}

fn disk_node(value: &Value) -> Option<DiskNode> {
    let node = value.get("node-name")?.as_str()?.to_owned();
    Some(DiskNode { node, file: file_of(value.get("file")?.as_str()?)? })
}

/// The path in what QEMU calls a node's file: a path, or all of the node's options where a path would not say enough.
fn file_of(text: &str) -> Option<PathBuf> {
    let Some(options) = text.strip_prefix("json:") else { return Some(PathBuf::from(text)) };
    let options: Value = serde_json::from_str(options).ok()?;
    let plain = options["file"]["filename"].as_str().or(options["file.filename"].as_str());
    plain.map(PathBuf::from)
}

fn merge_failed(reason: &str) -> QmpError {
    QmpError::Merge { reason: reason.to_owned() }
}

fn unexpected(command: &str) -> QmpError {
    QmpError::Unexpected { command: command.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_file_is_a_path_or_is_found_in_its_options() {
        assert_eq!(file_of("/a/b.qcow2"), Some("/a/b.qcow2".into()));
        let options =
            r#"json:{"backing": null, "driver": "qcow2", "file": {"driver": "file", "filename": "/a,b"}}"#;
        assert_eq!(file_of(options), Some("/a,b".into()));
        assert_eq!(file_of("json:{"), None);
        assert_eq!(file_of(r#"json:{"driver": "null-co"}"#), None);
    }
}
