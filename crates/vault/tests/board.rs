//! The task board of a team, as members and people use it.

mod support;

use agentiso_vault::board::{Board, BoardError, NewTask, Priority, Status, TaskId, available, order};
use support::TestVault;

fn id(text: &str) -> TaskId {
    TaskId::parse(text).unwrap()
}

fn new(title: &str, depends_on: &[&str]) -> NewTask {
    let depends_on = depends_on.iter().map(|text| id(text)).collect();
    NewTask { title: title.to_owned(), depends_on, ..NewTask::default() }
}

fn status(board: &Board, of: &str) -> (Status, Option<String>) {
    let tasks = board.list().unwrap().tasks;
    let task = tasks.into_iter().find(|task| task.id == id(of)).unwrap();
    (task.status, task.owner)
}

#[test]
fn index_follows_the_life_of_a_task() {
    let t = TestVault::new();
    let board = Board::of_team(&t.vault, "web").unwrap();
    assert!(board.list().unwrap().tasks.is_empty());
    assert_eq!(t.everything(), [""; 0], "looking makes nothing");
    assert_eq!(board.create(&new("Design", &[])).unwrap().id, id("task-001"));
    let build = NewTask { priority: Priority::High, ..new("Build", &["task-001"]) };
    assert_eq!(board.create(&build).unwrap().id, id("task-002"));
    board.create(&new("Third", &[])).unwrap();

    assert!(board.claim(&id("task-001"), "ann").unwrap());
    assert!(!board.claim(&id("task-001"), "bob").unwrap());
    assert_eq!(status(&board, "task-001"), (Status::Claimed, Some("ann".to_owned())));
    let index = t.get("teams/web/tasks/INDEX.md");
    assert!(index.starts_with("# Tasks of team web\n"), "{index}");
    assert!(
        index.contains("3 in all: 2 pending, 1 claimed, 0 in progress, 0 completed, 0 failed\n"),
        "{index}"
    );
    assert!(
        index.contains("## Pending\n\n- [ ] task-002: Build (priority: high, blocked by: task-001)\n"),
        "{index}"
    );
    assert!(
        index.contains("## Claimed\n\n- [~] task-001: Design (owner: ann, priority: medium)\n"),
        "{index}"
    );

    board.start(&id("task-001"), "ann").unwrap();
    let note = t.get("teams/web/tasks/task-001.md");
    assert!(note.contains("status: inprogress\n") && note.contains("priority: medium\n"), "{note}");
    let index = t.get("teams/web/tasks/INDEX.md");
    assert!(
        index.contains("## In Progress\n\n- [~] task-001: Design (owner: ann, priority: medium)\n"),
        "{index}"
    );
    board.complete(&id("task-001"), "ann", Some("It is drawn.")).unwrap();
    assert!(t.get("teams/web/tasks/task-001.md").ends_with("# Design\n\n## Result\n\nIt is drawn.\n"));
    board.fail(&id("task-003"), Some("no time")).unwrap();
    assert!(t.get("teams/web/tasks/task-003.md").ends_with("\n## Failure\n\nno time\n"));
    let index = t.get("teams/web/tasks/INDEX.md");
    assert!(
        index.contains("## Completed\n\n- [x] task-001: Design (owner: ann, priority: medium)\n"),
        "{index}"
    );
    assert!(index.contains("## Failed\n\n- [!] task-003: Third (priority: medium)\n"), "{index}");
    assert!(!index.contains("## Claimed") && !index.contains("## In Progress"), "nothing is there: {index}");
    assert!(index.contains("- [ ] task-002: Build (priority: high)\n"), "{index}");
    let tasks = board.list().unwrap().tasks;
    assert_eq!(available(&tasks, None).len(), 1);
    assert_eq!(order(&tasks).unwrap().len(), 3);
}

#[test]
fn task_and_index_record_their_times() {
    let t = TestVault::new();
    let board = Board::of_team(&t.vault, "web").unwrap();
    board.create(&new("T", &[])).unwrap();
    let times = || {
        let task = board.list().unwrap().tasks.remove(0);
        [task.created_at, task.updated_at].map(|time| time.unwrap().parse::<jiff::Timestamp>().unwrap())
    };
    let [made, changed] = times();
    assert_eq!(made, changed);
    let written = || {
        let index = t.get("teams/web/tasks/INDEX.md");
        let line = index.lines().find_map(|line| line.strip_prefix("Updated: ")).unwrap().to_owned();
        line.parse::<jiff::Timestamp>().unwrap()
    };
    assert!(written() >= made);
    let first = written();
    board.claim(&id("task-001"), "ann").unwrap();
    let [still, later] = times();
    assert!(still == made && later > changed && written() > first, "{still} {later}");
}

#[test]
fn only_the_owner_can_advance_a_task() {
    let t = TestVault::new();
    let board = Board::of_team(&t.vault, "web").unwrap();
    board.create(&new("T", &[])).unwrap();
    let task = id("task-001");
    let code = |result: Result<(), BoardError>| result.unwrap_err().code();
    assert_eq!(code(board.start(&task, "ann")), "wrong_status");
    assert_eq!(code(board.complete(&task, "ann", None)), "wrong_status");
    assert_eq!(code(board.release(&task, "ann")), "wrong_status");
    assert!(board.claim(&task, "ann").unwrap());
    assert_eq!(code(board.start(&task, "bob")), "not_task_owner");
    assert_eq!(code(board.complete(&task, "bob", None)), "not_task_owner");
    assert_eq!(code(board.release(&task, "bob")), "not_task_owner");
    board.release(&task, "ann").unwrap();
    assert_eq!(status(&board, "task-001"), (Status::Pending, None));
    assert!(board.claim(&task, "bob").unwrap());
    board.start(&task, "bob").unwrap();
    assert!(!board.claim(&task, "ann").unwrap());
    assert_eq!(code(board.release(&task, "bob")), "wrong_status");
    board.complete(&task, "bob", None).unwrap();
    assert_eq!(code(board.claim(&task, "ann").map(drop)), "wrong_status");
    assert_eq!(code(board.fail(&id("task-009"), None)), "task_not_found");
    let nobody = Board::of_team(&t.vault, "none").unwrap();
    assert_eq!(code(nobody.start(&task, "ann")), "task_not_found");
    assert!(!t.everything().iter().any(|path| path.contains("none")), "asking makes no folder");
}

#[test]
fn exactly_one_concurrent_claim_succeeds() {
    let t = TestVault::new();
    let board = Board::of_team(&t.vault, "web").unwrap();
    for number in 0..4 {
        board.create(&new(&format!("T{number}"), &[])).unwrap();
    }
    let winners = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for member in 0..8 {
            let (t, winners) = (&t, &winners);
            scope.spawn(move || {
                // Half of the members use another daemon's vault.
                let vault = if member % 2 == 0 { t.vault.clone() } else { t.another() };
                let board = Board::of_team(&vault, "web").unwrap();
                for task in ["task-001", "task-002", "task-003", "task-004"] {
                    if board.claim(&id(task), &format!("member{member}")).unwrap() {
                        winners.lock().unwrap().push((task, format!("member{member}")));
                    }
                }
            });
        }
    });
    let mut winners = winners.into_inner().unwrap();
    winners.sort();
    assert_eq!(
        winners.iter().map(|(task, _)| *task).collect::<Vec<_>>(),
        ["task-001", "task-002", "task-003", "task-004"]
    );
    for (task, member) in winners {
        assert_eq!(status(&board, task), (Status::Claimed, Some(member)));
    }
    assert!(t.get("teams/web/tasks/INDEX.md").contains("4 claimed"));
}

#[test]
fn concurrent_tasks_get_unique_numbers() {
    let t = TestVault::new();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let t = &t;
            scope.spawn(move || {
                let board = Board::of_team(&t.another(), "web").unwrap();
                for round in 0..3 {
                    board.create(&new(&format!("{thread}-{round}"), &[])).unwrap();
                }
            });
        }
    });
    let tasks = Board::of_team(&t.vault, "web").unwrap().list().unwrap().tasks;
    let titles: std::collections::HashSet<_> = tasks.iter().map(|task| task.title.clone()).collect();
    assert_eq!((tasks.len(), titles.len()), (18, 18));
    assert_eq!(tasks[17].id, id("task-018"));
}

#[test]
fn manual_edits_stay_and_broken_tasks_are_named() {
    let t = TestVault::new();
    let board = Board::of_team(&t.vault, "web").unwrap();
    t.put(
        "teams/web/tasks/task-007.md",
        "---\r\nestimate: 3d   # mine\r\nstatus: in_progress\r\nowner: ann\r\n---\r\n# By hand\r\ntext\r\n",
    );
    t.put("teams/web/tasks/task-008.md", "no frontmatter");
    t.put("teams/web/tasks/notes.md", "not a task");
    let all = board.list().unwrap();
    assert_eq!((all.tasks.len(), all.broken.len()), (1, 1));
    assert!(all.broken[0].problem.contains("frontmatter"));
    assert_eq!(board.claim(&id("task-008"), "ann").unwrap_err().code(), "broken_task");
    board.complete(&id("task-007"), "ann", Some("done")).unwrap();
    let text = t.get("teams/web/tasks/task-007.md");
    assert!(text.contains("estimate: 3d   # mine\r\nstatus: completed\r\n"), "{text:?}");
    assert!(text.ends_with("text\r\n\r\n## Result\r\n\r\ndone\r\n"), "{text:?}");
    assert_eq!(board.create(&new("Next", &[])).unwrap().id, id("task-009"), "after the highest number");
}

#[test]
fn hostile_names_and_numbers_are_refused() {
    let t = TestVault::new();
    for name in ["", "-a", "a-", "a/b", "..", "a b", "ä", &"x".repeat(65)] {
        assert_eq!(Board::of_team(&t.vault, name).unwrap_err().code(), "bad_team_name", "{name:?}");
    }
    t.put(&format!("teams/web/tasks/task-{}.md", u32::MAX), "---\nstatus: pending\n---\n# T\n");
    let board = Board::of_team(&t.vault, "web").unwrap();
    assert_eq!(board.create(&new("T", &[])).unwrap_err().code(), "board_full");
    let outside = t.outside();
    std::os::unix::fs::symlink(&outside, t.root().join("teams/evil")).unwrap();
    let evil = Board::of_team(&t.vault, "evil").unwrap();
    assert!(evil.create(&new("T", &[])).is_err());
    assert_eq!(std::fs::read_dir(outside).unwrap().count(), 0);
}
