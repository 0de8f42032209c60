//! Changing what a running machine's disk is made of: a fresh overlay on top, a layer merged into the one below.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::client::{QmpClient, QmpError};
use crate::qemu::argv::{file_node, qcow2_node};

/// The one merge that runs at a time.
const JOB: &str = "merge";

/// A cancelled merge ends with the request that is under way.
const CANCEL_DEADLINE: Duration = Duration::from_secs(20);

/// The node of a layer that we open. Node names begin with a letter and have at most 31 characters, the name of the
/// file's node below it included.
pub(crate) fn node_name(layer: &Path) -> String {
    let name = layer.file_stem().unwrap_or_default().to_string_lossy();
    format!("d-{name}").chars().take(26).collect()
}

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

    /// The files of the disk, from the head down to the image.
    pub async fn disk_chain(&self) -> Result<Vec<PathBuf>, QmpError> {
        let drives = self.execute("query-block", None).await?;
        let mut image = drives.get(0).map(|drive| &drive["inserted"]["image"]);
        let mut files = Vec::new();
        while let Some(found) = image.filter(|image| image.is_object()) {
            let name = found["filename"].as_str().and_then(file_of);
            files.push(name.ok_or_else(|| unexpected("query-block"))?);
            image = Some(&found["backing-image"]);
        }
        Ok(files)
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

    /// Puts the head on another layer that reads as the one it lies on, and closes those that nobody reads any more.
    pub async fn put_on(&self, layer: &Path, instead_of: &[PathBuf]) -> Result<(), QmpError> {
        let head = self.disk_head().await?;
        let below = node_name(layer);
        let mut options = qcow2_node(&below, layer);
        options["read-only"] = json!(true);
        options["file"]["read-only"] = json!(true);
        self.execute("blockdev-add", Some(options)).await?;
        let mut options = qcow2_node(&head.node, &head.file);
        options["file"] = json!(file_node(&head.node));
        options["backing"] = json!(below);
        if let Err(error) = self.execute("blockdev-reopen", Some(json!({"options": [options]}))).await {
            self.close_overlay(&below).await?;
            return Err(error);
        }
        let name = layer.file_name().unwrap_or_default().to_string_lossy();
        let header = json!({"device": head.node, "image-node-name": head.node, "backing-file": name});
        self.execute("change-backing-file", Some(header)).await?;
        let open = self.disk_nodes().await?;
        for file in instead_of {
            for node in open.iter().filter(|node| node.file == *file) {
                // What QEMU opened by itself it has closed by itself.
                if let Err(error) = self.close_overlay(&node.node).await {
                    tracing::debug!(node = node.node, %error, "a layer is not closed by us");
                }
            }
        }
        Ok(())
    }

    /// Ends a merge that whoever began it does not wait for any more.
    pub async fn end_merge(&self) -> Result<(), QmpError> {
        let mut events = self.events();
        let running = |jobs: &Value| jobs.as_array().is_some_and(|jobs| !jobs.is_empty());
        if !running(&self.execute("query-block-jobs", None).await?) {
            return Ok(());
        }
        // One that has just ended refuses, which is as well.
        let _ = self.execute("block-job-cancel", Some(json!({"device": JOB, "force": true}))).await;
        let ended = async {
            while running(&self.execute("query-block-jobs", None).await?) {
                if let Err(RecvError::Closed) = events.recv().await {
                    return Err(QmpError::Closed);
                }
            }
            Ok(())
        };
        let ended = tokio::time::timeout(CANCEL_DEADLINE, ended).await;
        ended.unwrap_or_else(|_elapsed| Err(merge_failed("it could not be cancelled")))
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
    pub(crate) async fn forget_node(&self, node: &str) -> Result<(), QmpError> {
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
