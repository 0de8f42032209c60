//! Dependencies of tasks: which tasks are available, and an order in which all can be done. Pure functions.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::error::BoardError;
use super::id::TaskId;
use super::task::{Status, Task};

/// Whether all dependencies of a task are completed. A dependency that does not exist is not.
pub fn is_ready(task: &Task, tasks: &[Task]) -> bool {
    blockers(task, tasks).is_empty()
}

/// The dependencies that a task still waits for.
pub(super) fn blockers<'a>(task: &'a Task, tasks: &[Task]) -> Vec<&'a str> {
    let completed =
        |id: &str| tasks.iter().any(|other| other.id.as_str() == id && other.status == Status::Completed);
    task.depends_on.iter().map(String::as_str).filter(|id| !completed(id)).collect()
}

/// The pending tasks whose dependencies are completed, by priority and then by id. With `owner`, tasks assigned to
/// others are left out.
pub fn available<'a>(tasks: &'a [Task], owner: Option<&str>) -> Vec<&'a Task> {
    let completed: HashSet<&str> =
        tasks.iter().filter(|task| task.status == Status::Completed).map(|task| task.id.as_str()).collect();
    let mut free: Vec<&Task> = tasks
        .iter()
        .filter(|task| task.status == Status::Pending)
        .filter(|task| task.depends_on.iter().all(|id| completed.contains(id.as_str())))
        .filter(|task| owner.is_none_or(|wanted| task.owner.as_deref().is_none_or(|owner| owner == wanted)))
        .collect();
    free.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.id.cmp(&b.id)));
    free
}

/// All tasks, each after its dependencies, ties by id. Dependencies that do not exist are ignored.
pub fn order(tasks: &[Task]) -> Result<Vec<&Task>, BoardError> {
    let by_id: BTreeMap<&str, &Task> = tasks.iter().map(|task| (task.id.as_str(), task)).collect();
    let needs = |task: &Task| -> BTreeSet<TaskId> {
        task.depends_on.iter().filter_map(|id| by_id.get(id.as_str())).map(|task| task.id.clone()).collect()
    };
    let mut waiting: BTreeMap<TaskId, BTreeSet<TaskId>> = BTreeMap::new();
    let mut dependents: BTreeMap<TaskId, Vec<TaskId>> = BTreeMap::new();
    for task in by_id.values() {
        let needed = needs(task);
        for id in &needed {
            dependents.entry(id.clone()).or_default().push(task.id.clone());
        }
        waiting.insert(task.id.clone(), needed);
    }
    let mut free: BTreeSet<TaskId> =
        waiting.iter().filter(|(_, needed)| needed.is_empty()).map(|(id, _)| id.clone()).collect();
    let mut ordered = Vec::with_capacity(by_id.len());
    while let Some(id) = free.pop_first() {
        waiting.remove(&id);
        for dependent in dependents.remove(&id).unwrap_or_default() {
            if let Some(needed) = waiting.get_mut(&dependent) {
                needed.remove(&id);
                if needed.is_empty() {
                    free.insert(dependent);
                }
            }
        }
        ordered.extend(by_id.get(id.as_str()).copied());
    }
    if waiting.is_empty() { Ok(ordered) } else { Err(BoardError::Cycle { members: circle(&waiting) }) }
}

/// One cycle among tasks that all wait for each other: following the dependencies must return to a task.
fn circle(waiting: &BTreeMap<TaskId, BTreeSet<TaskId>>) -> Vec<TaskId> {
    let mut path: Vec<TaskId> = Vec::new();
    let mut at = waiting.keys().next().cloned();
    while let Some(id) = at {
        if let Some(begin) = path.iter().position(|seen| *seen == id) {
            return path.split_off(begin);
        }
        at = waiting.get(&id).and_then(|needed| needed.first()).cloned();
        path.push(id);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::task::Priority;
    use proptest::prelude::*;

    fn task(number: usize, status: Status, depends_on: &[usize]) -> Task {
        Task {
            id: TaskId::parse(&format!("task-{number:03}")).unwrap(),
            title: "t".to_owned(),
            description: String::new(),
            status,
            priority: Priority::Medium,
            owner: None,
            depends_on: depends_on.iter().map(|number| format!("task-{number:03}")).collect(),
            created_at: None,
            updated_at: None,
        }
    }

    fn ids(tasks: &[&Task]) -> Vec<String> {
        tasks.iter().map(|task| task.id.to_string()).collect()
    }

    #[test]
    fn task_is_available_after_its_dependencies() {
        let mut tasks = vec![
            task(1, Status::Completed, &[]),
            task(2, Status::Pending, &[1]),
            task(3, Status::Pending, &[1, 2]),
            task(4, Status::Pending, &[99]),
            task(5, Status::Claimed, &[]),
            task(6, Status::Pending, &[]),
        ];
        assert_eq!(ids(&available(&tasks, None)), ["task-002", "task-006"]);
        tasks[5].priority = Priority::Critical;
        tasks[1].owner = Some("a".to_owned());
        assert_eq!(ids(&available(&tasks, None)), ["task-006", "task-002"]);
        assert_eq!(ids(&available(&tasks, Some("b"))), ["task-006"]);
        assert!(is_ready(&tasks[1], &tasks) && !is_ready(&tasks[2], &tasks) && !is_ready(&tasks[3], &tasks));
    }

    #[test]
    fn order_respects_dependencies_then_ids() {
        let tasks = [
            task(1, Status::Pending, &[3, 42]),
            task(2, Status::Pending, &[]),
            task(3, Status::Pending, &[2]),
        ];
        assert_eq!(ids(&order(&tasks).unwrap()), ["task-002", "task-003", "task-001"]);
    }

    #[test]
    fn dependency_cycle_names_only_its_members() {
        let tasks = [
            task(1, Status::Pending, &[2]),
            task(2, Status::Pending, &[3]),
            task(3, Status::Pending, &[2]),
            task(4, Status::Pending, &[]),
        ];
        let error = order(&tasks).unwrap_err();
        assert!(error.to_string().ends_with("task-002 needs task-003 needs task-002"), "{error}");
        let own = [task(1, Status::Pending, &[1])];
        assert!(order(&own).unwrap_err().to_string().ends_with("task-001 needs task-001"));
    }

    proptest! {
        #[test]
        fn order_has_each_task_after_its_dependencies(edges in prop::collection::vec((1usize..12, 1usize..12), 0..20)) {
            let tasks: Vec<Task> = (1..12)
                .map(|number| {
                    let needs: Vec<usize> = edges.iter().filter(|(from, _)| *from == number).map(|(_, to)| *to).collect();
                    task(number, Status::Pending, &needs)
                })
                .collect();
            match order(&tasks) {
                Ok(ordered) => {
                    prop_assert_eq!(ordered.len(), tasks.len());
                    for (at, task) in ordered.iter().enumerate() {
                        let done: Vec<&str> = ordered[..at].iter().map(|task| task.id.as_str()).collect();
                        prop_assert!(task.depends_on.iter().all(|id| done.contains(&id.as_str())));
                    }
                }
                Err(BoardError::Cycle { members }) => {
                    for (at, id) in members.iter().enumerate() {
                        let next = &members[(at + 1) % members.len()];
                        let task = tasks.iter().find(|task| task.id == *id).unwrap();
                        prop_assert!(task.depends_on.contains(&next.to_string()));
                    }
                }
                Err(other) => prop_assert!(false, "{}", other),
            }
        }
    }
}
