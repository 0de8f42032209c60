//! The offer of agentiso in one session: the tools of its profile, and the resources and prompts that follow from them.

use std::panic::{AssertUnwindSafe, resume_unwind};

use agentiso_core::names::{WorkspaceName, WorkspaceRef};
use agentiso_core::suggest::nearest;
use agentiso_daemon::{Session, SessionKind};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use rmcp::model::{
    CallToolResult, CompleteRequestParams, CompleteResult, ErrorData, GetPromptResult, JsonObject,
    ListResourcesResult, Prompt, ResourceContents, ResourceTemplate, Tool as ListedTool,
};
use serde_json::Value;

use crate::answer::{Answer, Failure};
use crate::args::{Implied, Reader};
use crate::offer::{Asked, Offer, Part, Running};
use crate::profile::Profile;
use crate::registry::{Call, Tool};
use crate::resources::follow::{self, Followed};
use crate::{call, complete, instructions, prompts, registry, resources};

pub(crate) struct SessionOffer {
    session: Session,
    profile: Profile,
}

impl SessionOffer {
    pub(crate) fn new(session: Session, profile: Profile) -> Self {
        Self { session, profile }
    }

    fn tool(&self, name: &str) -> Result<&'static Tool, ErrorData> {
        self.profile.find(name).ok_or_else(|| {
            let shown: String = name.chars().take(80).collect();
            let offered: Vec<&str> = self.profile.tools().map(|tool| tool.name).collect();
            let advice = match nearest(name, offered.iter().copied()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("the tools are {}", offered.join(", ")),
            };
            let message = if registry::find(name).next().is_some() {
                format!("tool {shown:?} is not offered in this session; the tools are {}", offered.join(", "))
            } else {
                format!("unknown tool {shown:?}; {advice}")
            };
            ErrorData::invalid_params(message, None)
        })
    }

    /// The workspace that a call means if it names none.
    fn implied(&self) -> Implied {
        if let SessionKind::Bound(id) = self.session.kind() {
            return Implied::Workspace(WorkspaceRef::Id(id));
        }
        let or_empty =
            |tool, words: &str| if self.profile.offers(tool) { words.to_owned() } else { String::new() };
        if !self.profile.is_core() {
            return Implied::None(or_empty("workspace_list", "; workspace_list shows all workspaces"));
        }
        let owned: Vec<_> = self.session.list(None).into_iter().filter(|info| info.owned).collect();
        match owned.as_slice() {
            [one] => Implied::Workspace(WorkspaceRef::Id(one.id)),
            [] => {
                let create = or_empty("workspace_create", "; create one with workspace_create");
                Implied::None(format!(", and this session owns no workspace{create}"))
            }
            many => {
                let names: Vec<&str> = many.iter().map(|info| info.name.as_str()).collect();
                Implied::None(format!(
                    ", and this session owns {} workspaces: {}",
                    many.len(),
                    names.join(", ")
                ))
            }
        }
    }
}

/// Arguments that name workspaces to work on, one or several.
const NAMES_WORKSPACES: &[&str] = &[
    "workspace_id",
    "workspace_ids",
    "source_workspaces",
    "target_workspace",
    "golden_workspace",
    "merge_target",
];

/// Tools that check the owner of their workspace themselves.
const DECIDES_ON_OWNER: &[&str] = &["workspace_adopt", "workspace_destroy"];

/// The workspaces that a call names, as far as they can be parsed.
fn named_workspaces(tool: &Tool, arguments: Option<&JsonObject>) -> Vec<WorkspaceRef> {
    if DECIDES_ON_OWNER.contains(&tool.name) {
        return Vec::new();
    }
    let given = NAMES_WORKSPACES.iter().filter_map(|name| arguments?.get(*name));
    let texts = given.flat_map(|value| {
        let several = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        several.chain(value.as_str())
    });
    texts.map(WorkspaceRef::parse).collect()
}

/// Adopts named workspaces whose session has ended before the call runs, and says so in the answer.
async fn adopt_then_run(session: Session, wanted: Vec<WorkspaceRef>, running: registry::Running) -> Outcome {
    let adopted = session.adopt_ownerless(&wanted).await;
    let outcome = running.await;
    if adopted.is_empty() {
        return outcome;
    }
    let names: Vec<&str> = adopted.iter().map(WorkspaceName::as_str).collect();
    let note = format!("Adopted because its session has ended: {}.", names.join(", "));
    match outcome {
        Ok(answer) => Ok(answer.with_note(note)),
        Err(failure) => Err(failure.with_note(note)),
    }
}

type Outcome = Result<Answer, Failure>;

/// Turns the outcome of a call into its result and counts errors. A panic is counted too and then resumed, because the
/// code that waits for the call answers it.
async fn run_counted(
    running: registry::Running,
    profile: &Profile,
    count: impl Fn(&'static str),
) -> CallToolResult {
    match AssertUnwindSafe(running).catch_unwind().await {
        Ok(outcome) => {
            let outcome = outcome.inspect_err(|failure| count(failure.code));
            outcome.map_or_else(|failure| failure.for_session(profile).into_result(), Answer::into_result)
        }
        Err(panic) => {
            count(call::DEFECT);
            resume_unwind(panic)
        }
    }
}

impl Offer for SessionOffer {
    fn instructions(&self) -> String {
        instructions::render(&self.profile)
    }

    fn has(&self, part: Part) -> bool {
        match part {
            Part::Tools => true,
            Part::Prompts => prompts::offered(&self.profile).next().is_some(),
            Part::Resources => resources::offered(&self.profile).next().is_some(),
            Part::Subscriptions => {
                resources::offered(&self.profile).any(|kind| kind.resource_type.can_be_followed())
            }
            Part::Completions => self.has(Part::Prompts) || self.has(Part::Resources),
        }
    }

    fn tools(&self) -> Vec<ListedTool> {
        let (short, internet) = (self.profile.is_core(), self.session.has_internet_by_default());
        self.profile.tools().map(|tool| tool.listed(short, internet)).collect()
    }

    fn tool_name(&self, name: &str) -> Result<&'static str, ErrorData> {
        self.tool(name).map(|tool| tool.name)
    }

    fn begin(&self, asked: Asked<'_>) -> Result<Running, ErrorData> {
        let tool = self.tool(asked.tool)?;
        let call = Call {
            session: self.session.clone(),
            progress: asked.progress,
            implied: self.implied(),
            max_read: self.profile.max_read(),
        };
        let session = self.session.clone();
        let count = move |code| session.count_error(code);
        let wanted = named_workspaces(tool, asked.arguments.as_ref());
        let running = match (tool.prepare)(Reader::new(tool.slots, asked.arguments), call) {
            Ok(running) => adopt_then_run(self.session.clone(), wanted, running).boxed(),
            Err(invalid) => std::future::ready(Err(Failure::invalid(tool.name, invalid))).boxed(),
        };
        let profile = self.profile.clone();
        Ok(async move { run_counted(running, &profile, count).await }.boxed())
    }

    fn not_begun(&self, code: &'static str) {
        self.session.count_error(code);
    }

    fn prompts(&self) -> Vec<Prompt> {
        prompts::listed(&self.profile)
    }

    fn prompt(&self, name: &str, arguments: Option<JsonObject>) -> Result<GetPromptResult, ErrorData> {
        prompts::get(&self.profile, name, arguments)
    }

    async fn resources(&self, cursor: Option<&str>) -> Result<ListResourcesResult, ErrorData> {
        resources::list(&self.session, &self.profile, cursor).await
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        resources::offered(&self.profile).map(|kind| kind.listed()).collect()
    }

    async fn read(&self, address: &str) -> Result<ResourceContents, ErrorData> {
        let uri = resources::parse(&self.profile, address)?;
        resources::read(&self.session, &uri, address)
            .await
            .map_err(|failure| failure.for_session(&self.profile).into_error())
    }

    fn check_followed(&self, address: &str) -> Result<(), ErrorData> {
        follow::parse(&self.profile, address).map(drop)
    }

    async fn follow(&self, address: &str) -> Result<BoxStream<'static, ()>, ErrorData> {
        let uri = follow::parse(&self.profile, address)?;
        Ok(match Followed::begin(&self.session, uri).await {
            Some(followed) => stream::unfold(followed, |mut followed| async {
                followed.changed().await;
                Some(((), followed))
            })
            .boxed(),
            None => stream::pending().boxed(),
        })
    }

    async fn complete(&self, request: CompleteRequestParams) -> Result<CompleteResult, ErrorData> {
        complete::complete(&self.session, &self.profile, request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[tokio::test]
    async fn errors_and_panics_are_counted() {
        let profile = Profile::inside();
        let codes = RefCell::new(Vec::new());
        let count = |code| codes.borrow_mut().push(code);
        let fine = std::future::ready(Ok(Answer::json(serde_json::json!({}))));
        run_counted(fine.boxed(), &profile, count).await;
        let refused = std::future::ready(Err(Failure::new("not_found", "it is not there".to_owned())));
        run_counted(refused.boxed(), &profile, count).await;
        let broken = async { panic!("a defect") }.boxed();
        assert!(AssertUnwindSafe(run_counted(broken, &profile, count)).catch_unwind().await.is_err());
        assert_eq!(codes.into_inner(), ["not_found", call::DEFECT]);
    }
}
