//! Connections to a server that is played by the test.

use super::*;
use crate::permits::Permits;

fn pair(idle: Option<Duration>) -> (Arc<Upstream>, BufReader<UnixStream>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Arc::new(Upstream::new(ours, idle)), BufReader::new(theirs))
}

fn permit() -> Permit {
    Permits::new(1).take().unwrap()
}

async fn line(server: &mut BufReader<UnixStream>) -> Value {
    let mut line = String::new();
    server.read_line(&mut line).await.unwrap();
    serde_json::from_str(&line).unwrap()
}

async fn say(server: &mut BufReader<UnixStream>, message: Value) {
    server.get_mut().write_all(format!("{message}\n").as_bytes()).await.unwrap();
}

#[tokio::test]
async fn requests_sharing_an_id_get_their_own_answers() {
    let (upstream, mut server) = pair(None);
    let request = json!({"id": "a", "method": "x", "params": {"_meta": {"progressToken": "t"}}});
    let mut first = upstream.call(request.clone(), permit()).unwrap();
    let second = upstream.call(request, permit()).unwrap();
    let (one, two) = (line(&mut server).await, line(&mut server).await);
    assert_ne!(one["id"], two["id"]);
    let token = &one["params"]["_meta"]["progressToken"];
    say(&mut server, json!({"id": two["id"], "result": 2})).await;
    say(&mut server, json!({"method": "notifications/progress", "params": {"progressToken": token}})).await;
    say(&mut server, json!({"id": one["id"], "result": 1})).await;
    assert_eq!(second.answered().await, Ok(json!({"id": "a", "result": 2})));
    assert!(matches!(first.next().await, CallEvent::Report(r) if r["params"]["progressToken"] == "t"));
    assert!(matches!(first.next().await, CallEvent::Answer(a) if a == json!({"id": "a", "result": 1})));
}

#[tokio::test]
async fn dropped_call_is_cancelled_unless_answered() {
    let (upstream, mut server) = pair(None);
    let call = upstream.call(json!({"id": 7, "method": "x"}), permit()).unwrap();
    let number = line(&mut server).await["id"].clone();
    say(&mut server, json!({"id": number, "result": 1})).await;
    call.answered().await.unwrap();
    drop(upstream.call(json!({"id": 8, "method": "y"}), permit()).unwrap());
    assert_eq!(line(&mut server).await["method"], "y");
    let cancelled = line(&mut server).await;
    assert_eq!(cancelled["params"]["requestId"], 2, "{cancelled}");
}

#[tokio::test]
async fn client_cancels_by_its_own_id() {
    let (upstream, mut server) = pair(None);
    let call = upstream.call(json!({"id": "mine", "method": "x"}), permit()).unwrap();
    line(&mut server).await;
    upstream.notify(json!({"method": "notifications/cancelled", "params": {"requestId": "other"}}), permit());
    upstream.notify(json!({"method": "notifications/cancelled", "params": {"requestId": "mine"}}), permit());
    assert_eq!(line(&mut server).await["params"]["requestId"], 1);
    assert_eq!(call.answered().await.unwrap()["error"]["message"], "the request was cancelled");
}

#[tokio::test(start_paused = true)]
async fn idle_upstream_ends_unless_a_call_runs() {
    let (upstream, mut server) = pair(Some(Duration::from_secs(10)));
    let call = upstream.call(json!({"id": 1, "method": "x"}), permit()).unwrap();
    let number = line(&mut server).await["id"].clone();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(!upstream.is_gone());
    say(&mut server, json!({"id": number, "result": 1})).await;
    call.answered().await.unwrap();
    let listening = upstream.listen();
    tokio::time::sleep(Duration::from_secs(95)).await;
    drop(listening);
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert!(!upstream.is_gone());
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(upstream.is_gone());
    assert_eq!(upstream.call(json!({"id": 1, "method": "x"}), permit()).err(), Some(Gone));
}

#[tokio::test]
async fn notifications_reach_the_listener_or_their_subscription() {
    let (upstream, mut server) = pair(None);
    let mut call = upstream.call(json!({"id": "sub", "method": "subscriptions/listen"}), permit()).unwrap();
    let number = line(&mut server).await["id"].clone();
    let gone = upstream.listen();
    drop(gone);
    let (mut first, mut last) = (upstream.listen(), upstream.listen());
    let tagged = json!({"_meta": {SUBSCRIPTION_KEY: number}});
    say(&mut server, json!({"method": "x", "params": tagged})).await;
    say(&mut server, json!({"method": "y", "params": {}})).await;
    let CallEvent::Report(report) = call.next().await else { panic!("no report") };
    assert_eq!(report["params"]["_meta"][SUBSCRIPTION_KEY], "sub");
    assert_eq!(last.next().await.unwrap()["method"], "y");
    assert!(first.heard.try_recv().is_err());
    say(&mut server, json!({"id": number, "result": tagged})).await;
    let answer = call.answered().await.unwrap();
    assert_eq!((&answer["id"], &answer["result"]["_meta"][SUBSCRIPTION_KEY]), (&json!("sub"), &json!("sub")));
    drop(server);
    assert_eq!(last.next().await, None);
}

#[tokio::test]
async fn waiting_call_learns_that_server_is_gone() {
    let (upstream, mut server) = pair(None);
    let call = upstream.call(json!({"id": 1, "method": "x"}), permit()).unwrap();
    line(&mut server).await;
    drop(server);
    assert_eq!(call.answered().await, Err(Gone));
}

#[tokio::test]
async fn unwritten_line_keeps_its_permit() {
    let (upstream, mut server) = pair(None);
    let permits = Permits::new(3);
    // More than a socket holds, so that the first line is never written completely.
    let long = json!({"method": "x", "params": {"text": "x".repeat(4 << 20)}});
    upstream.notify(long, permits.take().unwrap());
    upstream.notify(json!({"method": "y"}), permits.take().unwrap());
    drop(upstream.call(json!({"id": 1, "method": "z"}), permits.take().unwrap()).unwrap());
    tokio::task::yield_now().await;
    assert!(permits.take().is_none(), "nobody waits for them, and they are still in memory");
    for method in ["x", "y", "z", "notifications/cancelled"] {
        assert_eq!(line(&mut server).await["method"], method);
    }
    let all_free = async {
        while permits.take().zip(permits.take()).zip(permits.take()).is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), all_free).await.expect("all are free");
}

#[tokio::test]
async fn small_subscription_gives_its_permit_back() {
    let (upstream, mut server) = pair(None);
    let permits = Permits::new(2);
    let subscribe = |id: String| json!({"id": id, "method": SUBSCRIBING});
    let large = upstream.call(subscribe("x".repeat(MAX_KEPT + 1)), permits.take().unwrap()).unwrap();
    let small = upstream.call(subscribe("x".to_owned()), permits.take().unwrap()).unwrap();
    assert!(permits.take().is_none(), "the lines are not written yet");
    line(&mut server).await;
    line(&mut server).await;
    let one = async {
        loop {
            match permits.take() {
                Some(permit) => return permit,
                None => tokio::task::yield_now().await,
            }
        }
    };
    let _one = tokio::time::timeout(Duration::from_secs(30), one).await.expect("a turn is free");
    assert!(permits.take().is_none());
    assert!(large.lasts && small.lasts);
}
