//! The methods of the protocol that a session offers, and what their parameters look like.

use rmcp::model::{JsonObject, PromptsCapability, ResourcesCapability, ServerCapabilities};

use crate::offer::{Offer, Part};

/// In which era of the protocol a method exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    Stateful,
    Stateless,
    Both,
}

/// With the parameters that each takes, for requests whose parameters cannot be read.
const METHODS: &[(&str, Part, Era, &str)] = &[
    (
        "initialize",
        Part::Tools,
        Era::Stateful,
        "{\"protocolVersion\": text, \"capabilities\": object, \"clientInfo\": {\"name\", \"version\"}}",
    ),
    ("ping", Part::Tools, Era::Stateful, "an object"),
    ("server/discover", Part::Tools, Era::Both, "an object"),
    ("tools/list", Part::Tools, Era::Both, "{\"cursor\"?: text}"),
    ("tools/call", Part::Tools, Era::Both, "{\"name\": text, \"arguments\": object}"),
    ("prompts/list", Part::Prompts, Era::Both, "{\"cursor\"?: text}"),
    ("prompts/get", Part::Prompts, Era::Both, "{\"name\": text, \"arguments\"?: object}"),
    ("resources/list", Part::Resources, Era::Both, "{\"cursor\"?: text}"),
    ("resources/templates/list", Part::Resources, Era::Both, "{\"cursor\"?: text}"),
    ("resources/read", Part::Resources, Era::Both, "{\"uri\": text}"),
    ("resources/subscribe", Part::Subscriptions, Era::Stateful, "{\"uri\": text}"),
    ("resources/unsubscribe", Part::Subscriptions, Era::Stateful, "{\"uri\": text}"),
    (
        "subscriptions/listen",
        Part::Subscriptions,
        Era::Stateless,
        "{\"notifications\": {\"resourceSubscriptions\": [text]}}",
    ),
    (
        "completion/complete",
        Part::Completions,
        Era::Both,
        "{\"ref\": {\"type\", \"name\" or \"uri\"}, \"argument\": {\"name\": text, \"value\": text}}",
    ),
];

/// What the parameters of a method must be; `None` if this session has no such method in this era.
pub(crate) fn parameters(offer: &impl Offer, method: &str, stateless: bool) -> Option<&'static str> {
    let (_, part, era, parameters) = METHODS.iter().find(|(name, ..)| *name == method)?;
    let exists = match era {
        Era::Stateful => !stateless,
        Era::Stateless => stateless,
        Era::Both => true,
    };
    (exists && offer.has(*part)).then_some(*parameters)
}

/// Exactly what is there.
pub(crate) fn capabilities(offer: &impl Offer) -> ServerCapabilities {
    let mut capabilities = ServerCapabilities::builder().enable_tools().build();
    if offer.has(Part::Prompts) {
        capabilities.prompts = Some(PromptsCapability::default());
    }
    if offer.has(Part::Resources) {
        let mut resources = ResourcesCapability::default();
        resources.subscribe = offer.has(Part::Subscriptions).then_some(true);
        capabilities.resources = Some(resources);
    }
    if offer.has(Part::Completions) {
        capabilities.completions = Some(JsonObject::new());
    }
    capabilities
}
