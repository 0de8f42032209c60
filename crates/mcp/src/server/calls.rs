//! Calls of tools.

use agentiso_core::names::WorkspaceRef;
use agentiso_core::suggest::nearest;
use agentiso_daemon::SessionKind;
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, ErrorData, JsonObject};
use rmcp::service::RequestContext;

use super::{Server, cancelled};
use crate::answer::Failure;
use crate::args::{Implied, Reader};
use crate::registry::{Call, Tool};
use crate::{call, progress};

impl Server {
    pub(super) fn tool(&self, name: &str) -> Result<&'static Tool, ErrorData> {
        self.profile.find(name).ok_or_else(|| {
            let shown: String = name.chars().take(80).collect();
            let offered: Vec<&str> = self.profile.tools().map(|tool| tool.name).collect();
            let advice = match nearest(name, offered.iter().copied()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("the tools are {}", offered.join(", ")),
            };
            let message = if crate::registry::find(name).next().is_some() {
                format!("tool {shown:?} is not offered in this session; the tools are {}", offered.join(", "))
            } else {
                format!("unknown tool {shown:?}; {advice}")
            };
            ErrorData::invalid_params(message, None)
        })
    }

    /// Which workspace is meant when none is named.
    fn implied(&self) -> Implied {
        if let SessionKind::Bound(id) = self.session.kind() {
            return Implied::Workspace(WorkspaceRef::Id(id));
        }
        if !self.profile.is_core() {
            return Implied::Never;
        }
        let owned: Vec<_> = self.session.list(None).into_iter().filter(|info| info.owned).collect();
        match owned.as_slice() {
            [one] => Implied::Workspace(WorkspaceRef::Id(one.id)),
            [] => Implied::Unclear("this session owns no workspace; workspace_create makes one".to_owned()),
            many => {
                let names: Vec<&str> = many.iter().map(|info| info.name.as_str()).collect();
                Implied::Unclear(format!("this session owns {}: {}", many.len(), names.join(", ")))
            }
        }
    }

    pub(super) async fn call(
        &self,
        name: &str,
        arguments: Option<JsonObject>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let tool = self.tool(name)?;
        let (reporter, pump) = progress::channel(context.meta.get_progress_token(), context.peer.clone());
        let call = Call {
            session: self.session.clone(),
            progress: reporter,
            implied: self.implied(),
            max_read: self.profile.max_read(),
        };
        match (tool.prepare)(Reader::new(tool.slots, arguments), call) {
            Err(invalid) => Ok(Failure::invalid(tool.name, invalid).into_result()),
            Ok(running) => {
                call::run(tool.name, running, pump, &context.ct, &self.closed).await.map_err(|_| cancelled())
            }
        }
    }
}
