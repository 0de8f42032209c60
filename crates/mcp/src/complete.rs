//! Completion of partial input in addresses of resources and in arguments of prompts.

use agentiso_daemon::Session;
use rmcp::model::{CompleteRequestParams, CompleteResult, CompletionInfo, ErrorData, Reference};

use crate::profile::Profile;
use crate::{prompts, resources};

pub(crate) async fn complete(
    session: &Session,
    profile: &Profile,
    request: CompleteRequestParams,
) -> Result<CompleteResult, ErrorData> {
    let chosen = request.context.and_then(|context| context.arguments).unwrap_or_default();
    let (argument, typed) = (&request.argument.name, &request.argument.value);
    let values = match &request.r#ref {
        Reference::Prompt(prompt) => {
            let prompt = prompts::find(profile, &prompt.name)?;
            prompts::complete(session, prompt, argument, typed, &chosen).await
        }
        Reference::Resource(template) => match resources::find(profile, &template.uri) {
            Some(kind) => resources::complete(session, kind.resource_type, argument, typed, &chosen).await,
            None => {
                let shown: String = template.uri.chars().take(200).collect();
                let message = format!("unknown template {shown:?}; resources/templates/list shows all");
                return Err(ErrorData::invalid_params(message, None));
            }
        },
        // rmcp may add other kinds.
        _ => return Err(ErrorData::invalid_params("only prompts and templates can be completed", None)),
    };
    match values {
        Some(values) => Ok(CompleteResult::new(shortened(values))),
        None => {
            let shown: String = argument.chars().take(80).collect();
            Err(ErrorData::invalid_params(format!("unknown argument {shown:?}"), None))
        }
    }
}

/// The first values, as many as the protocol allows.
fn shortened(mut values: Vec<String>) -> CompletionInfo {
    let total = values.len();
    values.truncate(CompletionInfo::MAX_VALUES);
    let mut info = CompletionInfo::default();
    info.has_more = Some(values.len() < total);
    info.total = u32::try_from(total).ok();
    info.values = values;
    info
}
