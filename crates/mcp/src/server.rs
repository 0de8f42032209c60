//! The MCP server of one session.

use agentiso_core::names::WorkspaceRef;
use agentiso_core::suggest::nearest;
use agentiso_daemon::{Session, SessionKind};
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, CustomRequest, CustomResult, DiscoverResult, ErrorCode, ErrorData,
    Implementation, JsonObject, ListPromptsRequestMethod, ListPromptsResult,
    ListResourceTemplatesRequestMethod, ListResourceTemplatesResult, ListResourcesRequestMethod,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::answer::Failure;
use crate::args::{Implied, Reader};
use crate::profile::Profile;
use crate::registry::{Call, Tool};
use crate::{call, instructions, progress};

/// How long clients may keep what does not change during a session.
const FRESH_MS: u64 = 60 * 60 * 1000;

/// Methods that exist: a request for one of them that could not be read has wrong parameters.
const METHODS: &[&str] = &["initialize", "ping", "tools/list", "tools/call", "server/discover"];

pub(crate) struct Server {
    session: Session,
    profile: Profile,
    /// Cancelled when the client is gone.
    closed: CancellationToken,
}

impl Server {
    pub(crate) fn new(session: Session, profile: Profile, closed: CancellationToken) -> Self {
        Self { session, profile, closed }
    }

    fn tool(&self, name: &str) -> Result<&'static Tool, ErrorData> {
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

    async fn call(
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
                call::run(tool.name, running, pump, &context.ct, &self.closed).await.map_err(|_| {
                    // Nobody reads this: rmcp drops answers to cancelled requests.
                    ErrorData::new(ErrorCode::INVALID_REQUEST, "the request was cancelled", None)
                })
            }
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let identity = Implementation::new("agentiso", env!("CARGO_PKG_VERSION"))
            .with_title("agentiso")
            .with_description("Virtual machines for AI agents");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(identity)
            .with_instructions(instructions::render(&self.profile))
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let versions = self.supported_protocol_versions().into_owned();
        let found = DiscoverResult::from_server_info(versions, self.get_info());
        Ok(found.with_ttl_ms(FRESH_MS).with_cache_scope(CacheScope::Private))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if let Some(cursor) = request.and_then(|params| params.cursor) {
            let shown: String = cursor.chars().take(80).collect();
            let message =
                format!("unknown cursor {shown:?}; all tools are on one page, leave the cursor out");
            return Err(ErrorData::invalid_params(message, None));
        }
        let short = self.profile.is_core();
        let tools = self.profile.tools().map(|tool| tool.listed(short)).collect();
        let list = ListToolsResult::with_all_items(tools);
        let stateless = context.protocol_version().is_some_and(|version| !version.has_initialize());
        Ok(if stateless { list.with_ttl_ms(FRESH_MS).with_cache_scope(CacheScope::Private) } else { list })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.call(&request.name, request.arguments, &context).await.map(CallToolResponse::from)
    }

    /// Requests of unknown methods, and of known ones whose parameters rmcp could not read.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method.as_str();
        if !METHODS.contains(&method) {
            let shown: String = method.chars().take(80).collect();
            return Err(ErrorData::new(
                ErrorCode::METHOD_NOT_FOUND,
                format!("unknown method {shown:?}"),
                None,
            ));
        }
        let params = request.params.unwrap_or_default();
        if method == "tools/call"
            && let Some(name) = params.get("name").and_then(Value::as_str)
        {
            let tool = self.tool(name)?;
            let message = format!("{} was not run: arguments must be an object", tool.name);
            let failure = Failure::new("invalid_arguments", message);
            let result = serde_json::to_value(failure.into_result());
            return result.map(CustomResult::new).map_err(|e| ErrorData::internal_error(e.to_string(), None));
        }
        let shape = match method {
            "tools/call" => "{\"name\": text, \"arguments\": object}",
            "tools/list" => "{\"cursor\"?: text}",
            "initialize" => {
                "{\"protocolVersion\": text, \"capabilities\": object, \"clientInfo\": {\"name\", \"version\"}}"
            }
            _ => "an object",
        };
        Err(ErrorData::invalid_params(format!("the params of {method} must be {shape}"), None))
    }

    // rmcp answers these with empty lists unless told otherwise; a server without them should say so.

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourceTemplatesRequestMethod>())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    async fn on_initialized(&self, _: NotificationContext<RoleServer>) {}
}
