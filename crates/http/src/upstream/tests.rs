//! Conversations with a server that is played by the test.

use super::*;
use crate::turn::Turns;

fn pair(idle: Option<Duration>) -> (Arc<Upstream>, BufReader<UnixStream>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Arc::new(Upstream::new(ours, idle)), BufReader::new(theirs))
}

fn turn() -> Turn {
    Turns::new(1).take().unwrap()
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
async fn two_requests_of_one_id_get_their_own_answers_and_reports() {
    let (upstream, mut server) = pair(None);
    let request = json!({"id": "a", "method": "x", "params": {"_meta": {"progressToken": "t"}}});
    let mut first = upstream.call(request.clone(), turn()).unwrap();
    let second = upstream.call(request, turn()).unwrap();
    let (one, two) = (line(&mut server).await, line(&mut server).await);
    assert_ne!(one["id"], two["id"]);
    let token = &one["params"]["_meta"]["progressToken"];
    say(&mut server, json!({"id": two["id"], "result": 2})).await;
    say(&mut server, json!({"method": "notifications/progress", "params": {"progressToken": token}})).await;
    say(&mut server, json!({"id": one["id"], "result": 1})).await;
    assert_eq!(second.answered().await, Ok(json!({"id": "a", "result": 2})));
    assert!(matches!(first.next().await, News::Report(r) if r["params"]["progressToken"] == "t"));
    assert!(matches!(first.next().await, News::Answer(a) if a == json!({"id": "a", "result": 1})));
}

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled_and_one_that_was_answered_is_not() {
    let (upstream, mut server) = pair(None);
    let call = upstream.call(json!({"id": 7, "method": "x"}), turn()).unwrap();
    let number = line(&mut server).await["id"].clone();
    say(&mut server, json!({"id": number, "result": 1})).await;
    call.answered().await.unwrap();
    drop(upstream.call(json!({"id": 8, "method": "y"}), turn()).unwrap());
    assert_eq!(line(&mut server).await["method"], "y");
    let cancelled = line(&mut server).await;
    assert_eq!(cancelled["params"]["requestId"], 2, "{cancelled}");
}

#[tokio::test]
async fn a_client_cancels_by_its_own_id() {
    let (upstream, mut server) = pair(None);
    let call = upstream.call(json!({"id": "mine", "method": "x"}), turn()).unwrap();
    line(&mut server).await;
    upstream.notify(json!({"method": "notifications/cancelled", "params": {"requestId": "other"}}), turn());
    upstream.notify(json!({"method": "notifications/cancelled", "params": {"requestId": "mine"}}), turn());
    assert_eq!(line(&mut server).await["params"]["requestId"], 1);
    assert_eq!(call.answered().await.unwrap()["error"]["message"], "the request was cancelled");
}

#[tokio::test(start_paused = true)]
async fn silence_ends_it_but_not_while_something_is_under_way() {
    let (upstream, mut server) = pair(Some(Duration::from_secs(10)));
    let call = upstream.call(json!({"id": 1, "method": "x"}), turn()).unwrap();
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
    assert_eq!(upstream.call(json!({"id": 1, "method": "x"}), turn()).err(), Some(Gone));
}

#[tokio::test]
async fn what_is_said_unasked_goes_to_who_listens_and_what_was_subscribed_to_to_its_request() {
    let (upstream, mut server) = pair(None);
    let mut call = upstream.call(json!({"id": "sub", "method": "subscriptions/listen"}), turn()).unwrap();
    let number = line(&mut server).await["id"].clone();
    let gone = upstream.listen();
    drop(gone);
    let (mut first, mut last) = (upstream.listen(), upstream.listen());
    let tagged = json!({"_meta": {SUBSCRIPTION_KEY: number}});
    say(&mut server, json!({"method": "x", "params": tagged})).await;
    say(&mut server, json!({"method": "y", "params": {}})).await;
    let News::Report(report) = call.next().await else { panic!("no report") };
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
async fn whoever_waits_learns_that_the_server_has_gone() {
    let (upstream, mut server) = pair(None);
    let call = upstream.call(json!({"id": 1, "method": "x"}), turn()).unwrap();
    line(&mut server).await;
    drop(server);
    assert_eq!(call.answered().await, Err(Gone));
}

#[tokio::test]
async fn a_line_that_the_server_has_not_taken_keeps_its_turn() {
    let (upstream, mut server) = pair(None);
    let turns = Turns::new(3);
    // More than a socket holds, so that the first of them is never through.
    let long = json!({"method": "x", "params": {"text": "x".repeat(4 << 20)}});
    upstream.notify(long, turns.take().unwrap());
    upstream.notify(json!({"method": "y"}), turns.take().unwrap());
    drop(upstream.call(json!({"id": 1, "method": "z"}), turns.take().unwrap()).unwrap());
    tokio::task::yield_now().await;
    assert!(turns.take().is_none(), "nobody waits for them, and they are still in memory");
    for method in ["x", "y", "z", "notifications/cancelled"] {
        assert_eq!(line(&mut server).await["method"], method);
    }
    let all_free = async {
        while turns.take().zip(turns.take()).zip(turns.take()).is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), all_free).await.expect("all are free");
}

#[tokio::test]
async fn a_subscription_gives_its_turn_back_unless_much_is_kept_of_it() {
    let (upstream, mut server) = pair(None);
    let turns = Turns::new(2);
    let subscribe = |id: String| json!({"id": id, "method": SUBSCRIBING});
    let large = upstream.call(subscribe("x".repeat(MAX_KEPT + 1)), turns.take().unwrap()).unwrap();
    let small = upstream.call(subscribe("x".to_owned()), turns.take().unwrap()).unwrap();
    assert!(turns.take().is_none(), "the lines are not written yet");
    line(&mut server).await;
    line(&mut server).await;
    let one = async {
        loop {
            match turns.take() {
                Some(turn) => return turn,
                None => tokio::task::yield_now().await,
            }
        }
    };
    let _one = tokio::time::timeout(Duration::from_secs(30), one).await.expect("a turn is free");
    assert!(turns.take().is_none());
    assert!(large.lasts && small.lasts);
}
