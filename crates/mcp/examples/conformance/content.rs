//! Tools, prompts and resources that the conformance suite expects, word for word where it demands that.

use serde_json::{Value, json};

/// An image of one pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

/// A sound without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";

/// Builds the content of a result.
type Content = fn() -> Value;

/// Names of tools, with the content of their results.
pub(crate) const TOOLS: &[(&str, Content)] = &[
    ("test_simple_text", || json!([text("This is a simple text response for testing.")])),
    ("test_image_content", || json!([image()])),
    ("test_audio_content", || json!([{"type": "audio", "data": WAV, "mimeType": "audio/wav"}])),
    ("test_embedded_resource", || {
        json!([resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")])
    }),
    ("test_multiple_content_types", || {
        let data = r#"{"test":"data","value":123}"#;
        let embedded = resource("test://mixed-content-resource", "application/json", data);
        json!([text("Multiple content types test:"), image(), embedded])
    }),
    ("test_error_handling", || json!([text("This tool intentionally returns an error for testing")])),
    ("test_tool_with_progress", || json!([text("It took three steps.")])),
    ("test_missing_capability", || json!([text("The client can sample.")])),
    // The suite calls these three and checks that nothing is asked or logged meanwhile.
    ("test_streaming_elicitation", || json!([text("Nothing had to be asked.")])),
    ("test_logging_tool", || json!([text("Nothing had to be logged.")])),
    ("test_reconnection", || json!([text("The answer came at once.")])),
    ("json_schema_2020_12_tool", || json!([text("The schema is in the list.")])),
];

pub(crate) fn schema(tool: &str) -> Value {
    if tool != "json_schema_2020_12_tool" {
        return json!({"type": "object"});
    }
    let text = || json!({"type": "string"});
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {
            "$anchor": "addressDef", "type": "object", "properties": {"street": text(), "city": text()}
        }},
        "properties": {
            "name": text(),
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": text(),
            "email": text()
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false
    })
}

/// Names of prompts, with the arguments that each needs.
pub(crate) const PROMPTS: &[(&str, &[&str])] = &[
    ("test_simple_prompt", &[]),
    ("test_prompt_with_arguments", &["arg1", "arg2"]),
    ("test_prompt_with_embedded_resource", &["resourceUri"]),
    ("test_prompt_with_image", &[]),
];

/// The messages of a prompt; `given` looks an argument up.
pub(crate) fn messages(prompt: &str, given: impl Fn(&str) -> String) -> Vec<Value> {
    let contents = match prompt {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            let words = format!("Prompt with arguments: arg1='{}', arg2='{}'", given("arg1"), given("arg2"));
            vec![text(&words)]
        }
        "test_prompt_with_embedded_resource" => vec![
            resource(&given("resourceUri"), "text/plain", "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image" => vec![image(), text("Please analyze the image above.")],
        _ => Vec::new(),
    };
    contents.into_iter().map(|content| json!({"role": "user", "content": content})).collect()
}

pub(crate) const RESOURCES: &[(&str, &str)] = &[
    ("test://static-text", "text/plain"),
    ("test://static-binary", "image/png"),
    ("test://watched-resource", "text/plain"),
];

pub(crate) const TEMPLATE: (&str, &str) = ("test://template/", "/data");

pub(crate) fn contents(address: &str) -> Option<Value> {
    let written = |kind: &str, text: &str| Some(json!({"uri": address, "mimeType": kind, "text": text}));
    match address {
        "test://static-text" => written("text/plain", "This is the content of the static text resource."),
        "test://static-binary" => Some(json!({"uri": address, "mimeType": "image/png", "blob": PNG})),
        "test://watched-resource" => written("text/plain", "This is watched, and never changes."),
        _ => {
            let id = address.strip_prefix(TEMPLATE.0)?.strip_suffix(TEMPLATE.1)?;
            let data = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
            written("application/json", &data.to_string())
        }
    }
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn image() -> Value {
    json!({"type": "image", "data": PNG, "mimeType": "image/png"})
}

fn resource(uri: &str, kind: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}})
}
