//! `packhorse slurm status`: what waits and why, what runs where, what is done.

use std::io::Write as _;

use packhorse_model::{Exit, TaskId, Timestamp};
use packhorse_session::{can_go_on, stored_run};
use packhorse_slurm::{
    AskSlurm, ClusterView, ElementPhase, RunningOnNode, find_cluster_run, refresh, view,
};
use packhorse_store::{Home, Reader, StoredRun};
use serde_json::{Value, json};

use super::ls;
use super::table::{print_table, table};
use crate::stdout::stdout;
use crate::{complain, wording};

/// `packhorse slurm status`
pub fn status(run: Option<&str>, json: bool) -> anyhow::Result<Exit> {
    let home = Home::locate()?;
    let run = find_cluster_run(&Reader::open(&home)?, run)?;
    refresh(&home, run, AskSlurm::Yes)?;
    let view = view(&home, run)?;
    let reader = Reader::open(&home)?;
    let stored = stored_run(&reader, run)?;
    let mut out = stdout();
    if json {
        writeln!(out, "{}", as_json(&reader, &view, &stored)?)?;
        return Ok(Exit::Success);
    }
    let counts = &stored.counts;
    writeln!(out, "run {run}  {}", ls::state(stored.state))?;
    let numbers: Vec<String> = view.jobs.iter().map(|job| job.job.to_string()).collect();
    let numbers = match numbers.as_slice() {
        [] => "none was submitted".to_owned(),
        _ => numbers.join(", "),
    };
    if view.is_over {
        writeln!(out, "  jobs   {numbers}: over")?;
    } else {
        match &view.queue {
            Ok(_) => writeln!(
                out,
                "  jobs   {numbers}: {} running, {} pending, of {}",
                view.count(ElementPhase::Running),
                view.count(ElementPhase::Pending),
                view.elements,
            )?,
            Err(error) => writeln!(out, "  jobs   {numbers}: {error}")?,
        }
    }
    writeln!(
        out,
        "  tasks  {}: {} succeeded, {} failed, {} running, {} left",
        counts.total(),
        counts.succeeded,
        counts.failed,
        counts.running,
        counts.waiting + counts.interrupted,
    )?;
    if let Some(why) = view.why_waiting() {
        writeln!(out, "  {why}")?;
    }
    if !view.running.is_empty() {
        writeln!(out)?;
        let mut rows = table("NODE  GPU  TASK  TIME  COMMAND", &[3]);
        for task in &view.running {
            rows.add_row(row(&reader, &view, task)?);
        }
        print_table(&mut out, &rows)?;
    }
    drop(out);
    if view.is_over && counts.unfinished() > 0 && can_go_on(&reader, run)? {
        complain(&format!("hint: `packhorse slurm resume {run}` submits what is left"));
    }
    Ok(Exit::Success)
}

/// Where a task runs, for how long, and what it is.
fn row(reader: &Reader, view: &ClusterView, task: &RunningOnNode) -> anyhow::Result<[String; 5]> {
    let id = TaskId::new(view.run, task.number);
    let command = reader.task(id)?.map(|(task, _)| task.spec.command);
    let command = command.map(|command| wording::command(&command).into_owned());
    let time = task.since.map(|since| Timestamp::now().since(since));
    Ok([
        wording::or_dash(task.node.as_ref()),
        match task.gpus.as_slice() {
            [] => "-".to_owned(),
            gpus => gpus.join(","),
        },
        format!("{id}{}", wording::attempt(task.attempt)),
        time.map(wording::duration).unwrap_or_default(),
        command.unwrap_or_default(),
    ])
}

fn as_json(reader: &Reader, view: &ClusterView, stored: &StoredRun) -> anyhow::Result<Value> {
    let rows = view.queue.as_ref().map_or(&[][..], Vec::as_slice);
    let elements = rows.iter().map(|(element, row)| {
        json!({
            "element": element,
            "job": format!("{}_{}", row.job, row.index),
            "phase": match row.phase() {
                ElementPhase::Pending => "pending",
                ElementPhase::Running => "running",
                ElementPhase::Over => "over",
            },
            "state": row.state,
            "reason": row.reason,
            "node": row.node,
        })
    });
    let elements: Vec<Value> = elements.collect();
    let mut running = Vec::new();
    for task in &view.running {
        let id = TaskId::new(view.run, task.number);
        let command = reader.task(id)?.map(|(task, _)| task.spec.command);
        running.push(json!({
            "task": id.to_string(),
            "attempt": task.attempt,
            "node": task.node,
            "gpus": task.gpus,
            "started": task.since,
            "command": command.map(|command| command.to_text().into_owned()),
        }));
    }
    let jobs: Vec<u32> = view.jobs.iter().map(|job| job.job).collect();
    let mut value = ls::as_json(stored);
    value["jobs"] = json!(jobs);
    value["elements"] = json!(elements);
    value["running_tasks"] = json!(running);
    value["waiting_for"] = json!(view.why_waiting());
    if let Err(error) = &view.queue {
        value["trouble"] = json!(error.to_string());
    }
    Ok(value)
}
