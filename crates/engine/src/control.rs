//! Questions about tasks.

use packhorse_core::{self as core, Now};
use packhorse_model::TaskId;

use crate::Action;
use crate::engine::Engine;

impl Engine {
    /// Why the first in line waits, in words; nothing if nobody waits.
    pub fn why_first_waits(&self) -> Option<String> {
        self.explain(self.state.first_in_line()?)
    }

    fn explain(&self, task: TaskId) -> Option<String> {
        let name = |device| self.device_name(device);
        let holders = |device| self.others_on(device);
        let now = Now(self.now.monotonic);
        core::explain(&self.state, task, now, &name, &holders)
    }

    /// Answers why a task is where it is. What it waits for may depend on what other runs
    /// hold, which is not known while one of them decides.
    pub(crate) fn asked_why(&mut self, task: TaskId, reply_to: u64) {
        if self.awaits_turn && self.explain(task).is_some() {
            self.questions.push((task, reply_to));
        } else {
            let text = self.why(task);
            self.act(Action::Reply { to: reply_to, text });
        }
    }

    /// Answers what could not be answered while another run decided.
    pub(crate) fn answer_questions(&mut self) {
        if self.awaits_turn {
            return;
        }
        for (task, to) in std::mem::take(&mut self.questions) {
            let text = self.why(task);
            self.act(Action::Reply { to, text });
        }
    }

    /// Why a task is where it is, in words.
    pub(crate) fn why(&self, task: TaskId) -> String {
        if let Some(explanation) = self.explain(task) {
            return explanation;
        }
        let run = self.runs.get(&task.run);
        if run.is_some_and(|run| run.is_in_store(task.number)) {
            return format!(
                "task {task} waits in line, with more than {} others in front of it",
                self.state.counts().waiting
            );
        }
        if let Some(why) = self.why_held(task) {
            return why;
        }
        if run.is_some_and(|run| run.arriving.iter().any(|it| it.id == task)) {
            return format!("task {task} has just arrived, and is not in line yet");
        }
        if let Some(run) = run.filter(|run| task.number > run.known) {
            let yet = if run.is_input_over() { "" } else { " yet: its run still reads input" };
            return format!("there is no task {task}{yet}");
        }
        format!("run {} does not wait for task {task}", task.run)
    }
}
