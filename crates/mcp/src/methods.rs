//! The methods of the protocol that a session offers, and the form of their parameters.

use rmcp::model::{JsonObject, PromptsCapability, ResourcesCapability, ServerCapabilities};

use crate::offer::{Offer, Part};

/// The era of the protocol in which a method exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    Stateful,
    Stateless,
    Both,
}

/// Each method with the form of its parameters, for requests whose parameters cannot be parsed.
const METHODS: &[(&str, Part, Era, &str)] = &[
    (
        "initialize",
        Part::Tools,
        Era::Stateful,
        "{\"protocolVersion\": string, \"capabilities\": object, \"clientInfo\": {\"name\", \"version\"}}",
    ),
    ("ping", Part::Tools, Era::Stateful, "an object"),
    ("server/discover", Part::Tools, Era::Both, "an object"),
    ("tools/list", Part::Tools, Era::Both, "{\"cursor\"?: string}"),
    ("tools/call", Part::Tools, Era::Both, "{\"name\": string, \"arguments\": object}"),
    ("prompts/list", Part::Prompts, Era::Both, "{\"cursor\"?: string}"),
    ("prompts/get", Part::Prompts, Era::Both, "{\"name\": string, \"arguments\"?: object}"),
    ("resources/list", Part::Resources, Era::Both, "{\"cursor\"?: string}"),
    ("resources/templates/list", Part::Resources, Era::Both, "{\"cursor\"?: string}"),
    ("resources/read", Part::Resources, Era::Both, "{\"uri\": string}"),
    ("resources/subscribe", Part::Subscriptions, Era::Stateful, "{\"uri\": string}"),
    ("resources/unsubscribe", Part::Subscriptions, Era::Stateful, "{\"uri\": string}"),
    (
        "subscriptions/listen",
        Part::Subscriptions,
        Era::Stateless,
        "{\"notifications\": {\"resourceSubscriptions\": [string]}}",
    ),
    (
        "completion/complete",
        Part::Completions,
        Era::Both,
        "{\"ref\": {\"type\", \"name\" or \"uri\"}, \"argument\": {\"name\": string, \"value\": string}}",
    ),
];

/// The form of a method's parameters; `None` if this session has no such method in this era.
pub(crate) fn parameters(offer: &impl Offer, method: &str, stateless: bool) -> Option<&'static str> {
    let (_, part, era, parameters) = METHODS.iter().find(|(name, ..)| *name == method)?;
    let exists = match era {
        Era::Stateful => !stateless,
        Era::Stateless => stateless,
        Era::Both => true,
    };
    (exists && offer.has(*part)).then_some(*parameters)
}

/// Announces exactly the parts that the offer has.
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
