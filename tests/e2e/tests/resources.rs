//! MCP resources of a real workspace: reading by URI, completion and subscriptions.

use agentiso_testkit::{Client, LONG, RpcReply, eventually, host_or_skip};
use serde_json::{Value, json};

fn read(client: &Client, uri: &str) -> Value {
    client.request("resources/read", json!({"uri": uri})).result()["contents"][0].clone()
}

fn was_notified(client: &Client, uri: &str) -> bool {
    client.unsolicited().iter().any(|message| {
        message["method"] == "notifications/resources/updated" && message["params"]["uri"] == uri
    })
}

#[test]
fn workspace_resources_are_read_and_subscribed() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace_with(json!({"name": "web"}));
    ws.write("/workspace/it's a file", "text\n");
    ws.sh("head -c 4 /dev/zero > /workspace/zeroes; printf '\\377' >> /workspace/zeroes");
    let text = read(&client, "agentiso://workspace/web/file/workspace/it's%20a%20file");
    assert_eq!((&text["text"], &text["mimeType"]), (&json!("text\n"), &json!("text/plain")));
    assert_eq!(read(&client, "agentiso://workspace/web/file/workspace/zeroes")["blob"], "AAAAAP8=");
    let completed = client
        .request(
            "completion/complete",
            json!({
                "ref": {"type": "ref/resource", "uri": "agentiso://workspace/{name}/file{+path}"},
                "argument": {"name": "path", "value": "/works"}, "context": {"arguments": {"name": "web"}},
            }),
        )
        .result();
    assert_eq!(completed["completion"]["values"], json!(["/workspace/"]));

    // The end of a job is notified.
    let started =
        ws.tool("exec_background", json!({"action": "start", "command": "sleep 2; echo over"})).json();
    let job = format!("agentiso://workspace/web/job/{}", started["job_id"]);
    client.request("resources/subscribe", json!({"uri": job})).result();
    eventually("the end of the job is told", LONG, || was_notified(&client, &job));
    let ended: Value = serde_json::from_str(read(&client, &job)["text"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&ended["running"], &ended["exit_code"], &ended["stdout"]),
        (&json!(false), &json!(0), &json!("over\n"))
    );

    // Changes of a workspace are notified, no matter who makes them. Other sessions cannot read it.
    let address = "agentiso://workspace/web";
    client.request("resources/subscribe", json!({"uri": address})).result();
    let other = host.client();
    let refused = other.request("resources/read", json!({"uri": address})).wait();
    assert!(
        matches!(&refused, RpcReply::Error { message, .. } if message.contains("workspace_adopt")),
        "{refused:?}"
    );
    host.cli_ok(&["stop", "web"]);
    eventually("the stop is told", LONG, || was_notified(&client, address));
    let stopped: Value = serde_json::from_str(read(&client, address)["text"].as_str().unwrap()).unwrap();
    assert_eq!(stopped["state"], "stopped");
}
