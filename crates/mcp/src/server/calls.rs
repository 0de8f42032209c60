//! Tool calls: connects a request with its progress reports and its cancellation.

use rmcp::RoleServer;
use rmcp::model::{CallToolResult, ErrorData, JsonObject};
use rmcp::service::RequestContext;

use super::{Server, cancelled};
use crate::offer::{Asked, Offer};
use crate::{call, progress};

impl<O: Offer> Server<O> {
    pub(super) async fn call(
        &self,
        name: &str,
        arguments: Option<JsonObject>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let (reporter, pump) = progress::channel(context.meta.get_progress_token(), context.peer.clone());
        let client = context.client_capabilities();
        let asked = Asked { tool: name, arguments, progress: reporter, client };
        let running = self.offer.begin(asked)?;
        call::run(name, running, pump, &context.ct, &self.closed).await.map_err(|_| cancelled())
    }
}
